"""CreateTopics, DeleteTopics, CreatePartitions: each topic of a request succeeds or fails by itself."""

from collections import Counter
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from tidemill.broker.topics import UNSET
from tidemill.cluster.core.image import Topic
from tidemill.model.errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidRequest,
    PolicyViolation,
    TidemillError,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidemill.model.topics import refuse_internal
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.kafka.api import Call, error_code, error_message
from tidemill.servers.kafka.configs import topic_listing
from tidemill.servers.kafka.quota_checks import MutationQuota

if TYPE_CHECKING:
    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
    from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
    from kio.schema.create_topics.v7.request import CreateTopicsRequest
    from kio.schema.create_topics.v7.response import CreateTopicsResponse
    from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as DeleteTopicsRequestV5
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
    from kio.schema.delete_topics.v6.response import DeleteTopicsResponse

PARTITIONS_PER_TOPIC_MAX = 10_000
_CREATE_REFUSED_FROM, _DELETE_REFUSED_FROM, _EXTEND_REFUSED_FROM = 6, 5, 3
"""Versions of CreateTopics, DeleteTopics and CreatePartitions whose clients know THROTTLING_QUOTA_EXCEEDED."""


async def create_topics(call: Call["CreateTopicsResponse"], request: "CreateTopicsRequest") -> "CreateTopicsResponse":
    """Create topics."""
    names = Counter([topic.name async for topic in call.in_slices(request.topics)])
    quota = MutationQuota(call, is_strict=call.version >= _CREATE_REFUSED_FROM)
    results = []
    async for asked in call.in_slices(request.topics):
        topic, error = None, None
        try:
            if names[asked.name] > 1:
                raise InvalidRequest(f"the request names {asked.name[:60]!r} twice; name each topic once")
            _check_topic_or_cluster(call, Operation.CREATE, asked.name)
            topic = await _create(call, asked, quota, validate_only=request.validate_only)
            if not request.validate_only:
                call.changed("topic_created", topic=topic.name, partitions=len(topic.partitions))
        except TidemillError as caught:
            error = caught
        results.append(_created(call, asked.name, topic, error))
    return call.response(topics=tuple(results))


def _check_topic_or_cluster(call: Call, operation: Operation, name: str) -> None:
    """Check an operation that a right on the cluster allows for every topic."""
    if not call.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME):
        call.check(operation, ResourceType.TOPIC, name)


async def _create(call: Call, asked: Any, quota: MutationQuota, *, validate_only: bool) -> Topic:
    overrides: dict[str, str] = {}
    for config in asked.configs:
        if config.value is None:
            raise InvalidConfig(f"setting {config.name[:60]} has no value")
        overrides[config.name] = config.value
    assignment = {each.partition_index: list(each.broker_ids) for each in asked.assignments}
    if len(assignment) != len(asked.assignments):
        raise InvalidReplicaAssignment("the assignment names a partition twice")
    _check_count(max(asked.num_partitions, len(assignment)))
    count = len(assignment) or asked.num_partitions
    count = call.broker.settings.num_partitions if count == UNSET else max(0, count)
    async with quota.spend(0 if validate_only else count):
        return await call.broker.topics.create(
            asked.name,
            partitions=asked.num_partitions,
            replication_factor=asked.replication_factor,
            overrides=overrides,
            assignment=assignment or None,
            validate_only=validate_only,
        )


def _check_count(partitions: int) -> None:
    if partitions > PARTITIONS_PER_TOPIC_MAX:
        raise PolicyViolation(f"{partitions} partitions are too many; a topic may have {PARTITIONS_PER_TOPIC_MAX}")


def _created(call: Call, name: str, topic: Topic | None, error: TidemillError | None) -> Any:
    if topic is None:
        return call.part(
            "CreatableTopicResult",
            name=name,
            error_code=error_code(error),
            error_message=error_message(error),
            configs=(),
        )
    configs = ()
    if not call.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        return call.part(
            "CreatableTopicResult",
            name=name,
            topic_id=topic.topic_id,
            topic_config_error_code=TopicAuthorizationFailed.code,
            configs=(),
        )
    if call.version >= 5:
        configs = tuple(
            call.part(
                "CreatableTopicConfigs",
                name=entry.setting.name,
                value=entry.value,
                read_only=False,
                config_source=entry.source,
                is_sensitive=False,
            )
            for entry in topic_listing(call.broker, topic)
        )
    return call.part(
        "CreatableTopicResult",
        name=name,
        topic_id=topic.topic_id,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=configs,
    )


async def delete_topics(call: Call["DeleteTopicsResponse"], request: "DeleteTopicsRequest") -> "DeleteTopicsResponse":
    """Delete topics with all their records."""
    if call.version < 6:
        asked: list[tuple[str | None, UUID | None]] = [
            (name, None) for name in cast("DeleteTopicsRequestV5", request).topic_names
        ]
    else:
        asked = [(topic.name, topic.topic_id) for topic in request.topics]
    counted = Counter([each async for each in call.in_slices(asked)])
    quota = MutationQuota(call, is_strict=call.version >= _DELETE_REFUSED_FROM)
    results = [await _delete(call, quota, *each, twice=counted[each] > 1) async for each in call.in_slices(asked)]
    return call.response(responses=tuple(results))


async def _delete(call: Call, quota: MutationQuota, name: str | None, topic_id: UUID | None, *, twice: bool) -> Any:
    error: TidemillError | None = None
    try:
        if twice:
            raise InvalidRequest(f"the request names {str(name or topic_id)[:60]!r} twice; name each topic once")
        if (name is None) == (topic_id is None):
            raise InvalidRequest("a topic of the request must have either a name or an id")
        if name is not None:
            _check_topic_or_cluster(call, Operation.DELETE, name)
        known = (
            call.broker.view.topic(name) if name is not None else call.broker.view.topic_by_id(topic_id or UUID(int=0))
        )
        if known is None:
            raise UnknownTopicOrPartition if name is not None else UnknownTopicId
        if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, known.name):
            name, topic_id = known.name, known.topic_id
        _check_topic_or_cluster(call, Operation.DELETE, known.name)
        async with quota.spend(len(known.partitions)):
            await call.broker.topics.delete(known.name)
        call.changed("topic_deleted", topic=known.name)
    except TidemillError as caught:
        error = caught
    if isinstance(error, TopicAuthorizationFailed) and name is None:
        # Without the right to describe it, a client does not learn the name of an id.
        error = TopicAuthorizationFailed(f"{call.principal} may not DELETE TOPIC {topic_id}")
    return call.part(
        "DeletableTopicResult",
        name=name,
        topic_id=topic_id,
        error_code=error_code(error),
        error_message=error_message(error),
    )


async def create_partitions(
    call: Call["CreatePartitionsResponse"], request: "CreatePartitionsRequest"
) -> "CreatePartitionsResponse":
    """Add partitions to topics; `count` is the new total."""
    names = Counter([topic.name async for topic in call.in_slices(request.topics)])
    quota = MutationQuota(call, is_strict=call.version >= _EXTEND_REFUSED_FROM)
    results = []
    async for asked in call.in_slices(request.topics):
        error: TidemillError | None = None
        try:
            if names[asked.name] > 1:
                raise InvalidRequest(f"the request names {asked.name[:60]!r} twice; name each topic once")
            call.check(Operation.ALTER, ResourceType.TOPIC, asked.name)
            refuse_internal(asked.name)
            _check_count(asked.count)
            assignment = [list(each.broker_ids) for each in asked.assignments] if asked.assignments else None
            known = call.broker.view.topic(asked.name)
            added = 0 if known is None or request.validate_only else max(0, asked.count - len(known.partitions))
            async with quota.spend(added):
                await call.broker.topics.add_partitions(
                    asked.name, asked.count, assignment=assignment, validate_only=request.validate_only
                )
            if not request.validate_only:
                call.changed("partitions_created", topic=asked.name, partitions=asked.count)
        except TidemillError as caught:
            error = caught
        results.append(
            call.part(
                "CreatePartitionsTopicResult",
                name=asked.name,
                error_code=error_code(error),
                error_message=error_message(error),
            )
        )
    return call.response(results=tuple(results))
