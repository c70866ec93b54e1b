"""Metadata and DescribeTopicPartitions: the topics, their partitions and replicas.

Encoded Metadata responses are cached by API version, topics and version of the cluster image, because many clients send
the same request. A change of the image must clear the cache. A missing topic is created first if the request and the
settings allow it.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.cluster.core.image import NO_BROKER, PartitionInfo, Topic
from tidemill.model.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    TidemillError,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidemill.model.topics import INTERNAL, PIPELINES, check_topic_name
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.kafka.api import Buffers, Call, error_code
from tidemill.servers.kafka.authorized_operations import cluster_operations, topic_operations
from tidemill.servers.kafka.pipeline_reports import ensure_reports_topic
from tidemill.servers.kafka.quota_checks import MutationQuota

CACHED_ANSWERS_MAX = 64
CACHED_ANSWER_BYTES_MAX = 1024 * 1024
CACHED_TOPICS_MAX = 500
"""A response for more topics is not cached: comparing the names takes as long as encoding it."""
DESCRIBED_PARTITIONS_MAX = 2000
_NULL_IS_ALL_FROM = 1
_CREATION_ASKED_FROM = 4


class RequestedTopic(NamedTuple):
    """A topic that a client asks for, by its name or by its id."""

    name: str | None
    topic_id: UUID | None


REPORTS = RequestedTopic(PIPELINES, None)


class MetadataHandler:
    """The Metadata API of one server, with its cache of responses."""

    def __init__(self) -> None:
        self._answers: dict[tuple[Any, ...], bytes] = {}
        self._image_version = -1

    async def handle(self, call: Call, request: Any) -> Buffers:
        """Serve one request."""
        asked = request.topics
        if asked is not None and not asked and call.version < _NULL_IS_ALL_FROM:
            asked = None
        names = None if asked is None else await _distinct(call, asked)
        not_created: frozenset[str] = frozenset()
        if names is not None:
            if REPORTS in names:
                await ensure_reports_topic(call)
            not_created = await _create_missing(call, request, names)
        if not_created or (names is not None and len(names) > CACHED_TOPICS_MAX):
            return [await _encode(call, request, names, not_created)]
        key = (
            call.version,
            call.listener,
            _rights(call),
            None if names is None else tuple(names),
            getattr(request, "include_topic_authorized_operations", False),
            getattr(request, "include_cluster_authorized_operations", False),
        )
        known = self._cached(call, key)
        if known is not None:
            return [known]
        image_version = call.broker.view.version
        return [self._cache(call, key, image_version, await _encode(call, request, names))]

    def _cached(self, call: Call, key: tuple[Any, ...]) -> bytes | None:
        if self._image_version != call.broker.view.version:
            self._answers.clear()
            self._image_version = call.broker.view.version
        return self._answers.get(key)

    def _cache(self, call: Call, key: tuple[Any, ...], image_version: int, answer: bytes) -> bytes:
        """Cache the response, unless the image has changed while it was encoded."""
        is_current = image_version == call.broker.view.version == self._image_version
        if is_current and len(answer) <= CACHED_ANSWER_BYTES_MAX:
            if len(self._answers) >= CACHED_ANSWERS_MAX:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = answer
        return answer


def _rights(call: Call) -> object:
    """A value that is equal only for clients that see the same topics."""
    if not call.checks_rights:
        return None
    return call.broker.security.authorizer.rights_key(call.principal, call.client_host)


async def _distinct(call: Call, asked: Sequence[Any]) -> list[RequestedTopic]:
    """The requested topics by name or id, each once, in order."""
    names: dict[RequestedTopic, None] = {}
    async for topic in call.in_slices(asked):
        topic_id = getattr(topic, "topic_id", None)
        names[RequestedTopic(topic.name if topic_id is None else None, topic_id)] = None  # an id wins over a name
    return list(names)


async def _create_missing(call: Call, request: Any, asked: Sequence[RequestedTopic]) -> frozenset[str]:
    """Create the missing topics; the names of those that the client may describe but not create."""
    broker = call.broker
    allowed = call.version < _CREATION_ASKED_FROM or request.allow_auto_topic_creation
    if not (allowed and broker.settings.auto_create_topics_enable):
        return frozenset()
    quota = MutationQuota(call, is_strict=False)
    refused = []
    async for name, _ in call.in_slices(asked):
        if name is None or name in INTERNAL or broker.view.topic(name) is not None:
            continue
        if not call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            continue  # the response has the error
        if not _may_create(call, name):
            refused.append(name)
            continue
        # If this fails, the response has the error of the name, or UNKNOWN_TOPIC_OR_PARTITION.
        with suppress(TidemillError):
            async with quota.spend(broker.settings.num_partitions):
                await broker.topics.create(name)
            call.changed("topic_created", topic=name)
    return frozenset(refused)


def _may_create(call: Call, name: str) -> bool:
    return call.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or not call.denial(
        Operation.CREATE, ResourceType.TOPIC, name
    )


async def _encode(
    call: Call, request: Any, asked: Sequence[RequestedTopic] | None, not_created: frozenset[str] = frozenset()
) -> bytes:
    broker = call.broker
    with_operations = getattr(request, "include_topic_authorized_operations", False)
    if asked is None:
        topics = [
            await _topic(call, topic, with_operations=with_operations)
            async for topic in call.in_slices(broker.view.topics())
            if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    else:
        topics = [
            await _asked_topic(call, each, not_created, with_operations=with_operations)
            async for each in call.in_slices(asked)
        ]
    answer = call.response(
        brokers=tuple(
            call.part("MetadataResponseBroker", **node._asdict()) for node in broker.view.brokers(call.listener)
        ),
        cluster_id=broker.cluster_id,
        controller_id=broker.view.controller_id,
        topics=tuple(topics),
        cluster_authorized_operations=cluster_operations(
            call, asked=getattr(request, "include_cluster_authorized_operations", False)
        ),
    )
    return bytes(await call.encoded(answer))


async def _asked_topic(call: Call, asked: RequestedTopic, not_created: frozenset[str], *, with_operations: bool) -> Any:
    name, topic_id = asked
    try:
        if topic_id is not None:
            found = call.broker.view.topic_by_id(topic_id)
            if found is None:
                raise UnknownTopicId
            call.check(Operation.DESCRIBE, ResourceType.TOPIC, found.name)
        elif name is not None:
            if name != PIPELINES:  # every pipeline may find out where to send its reports
                call.check(Operation.DESCRIBE, ResourceType.TOPIC, name)
            if name in not_created:
                raise TopicAuthorizationFailed
            check_topic_name(name)
            found = call.broker.view.topic(name)
            if found is None:
                raise UnknownTopicOrPartition
        else:
            raise InvalidRequest("a topic of the request has neither a name nor an id")
    except TidemillError as error:
        shown = "" if name is None and call.version < 12 else name
        return call.part("MetadataResponseTopic", error_code=error_code(error), name=shown, topic_id=topic_id)
    return await _topic(call, found, with_operations=with_operations)


async def _topic(call: Call, topic: Topic, *, with_operations: bool) -> Any:
    partitions = [
        call.part("MetadataResponsePartition", **partition_fields(call, topic, info))
        async for info in call.in_slices(topic.partitions)
    ]
    return call.part(
        "MetadataResponseTopic",
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=tuple(partitions),
        topic_authorized_operations=topic_operations(call, topic.name, asked=with_operations),
    )


def partition_fields(call: Call, topic: Topic, info: PartitionInfo) -> dict[str, Any]:
    """The fields of a partition in responses; the leader's log has the newest epoch, so it wins over the image."""
    broker = call.broker
    epoch, led = info.leader_epoch, info.leader != NO_BROKER
    if info.leader == broker.node_id:
        led = not broker.partitions.is_away(topic.name, info.index)
        with suppress(TidemillError):
            epoch = broker.view.partition(topic.name, info.index).leader_epoch
    return {
        "error_code": 0 if led else LeaderNotAvailable.code,
        "partition_index": info.index,
        "leader_id": info.leader if led else NO_BROKER,
        "leader_epoch": epoch,
        "replica_nodes": info.replicas,
        "isr_nodes": info.isr,
        "offline_replicas": tuple(node for node in info.replicas if broker.view.address_of(node) is None),
    }


async def describe_topic_partitions(call: Call, request: Any) -> Any:
    """Topics in pages, ordered by name; the cursor is the start of the next page."""
    names = sorted({topic.name for topic in request.topics} or await _visible_topics(call))
    first = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        first = max(0, request.cursor.partition_index)
    limit = max(1, min(request.response_partition_limit, DESCRIBED_PARTITIONS_MAX))
    described, cursor = [], None
    async for name in call.in_slices(names):
        if limit <= 0:
            cursor = call.part("Cursor", topic_name=name, partition_index=0)
            break
        start = first if request.cursor is not None and name == request.cursor.topic_name else 0
        part, shown, left = _described(call, name, start, limit)
        described.append(part)
        limit -= shown
        if left:
            cursor = call.part("Cursor", topic_name=name, partition_index=start + shown)
            break
    return call.response(topics=tuple(described), next_cursor=cursor)


async def _visible_topics(call: Call) -> set[str]:
    return {
        topic.name
        async for topic in call.in_slices(call.broker.view.topics())
        if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
    }


def _described(call: Call, name: str, start: int, limit: int) -> tuple[Any, int, int]:
    kind = "DescribeTopicPartitionsResponseTopic"
    denial = call.denial(Operation.DESCRIBE, ResourceType.TOPIC, name)
    topic = call.broker.view.topic(name) if denial is None else None
    if topic is None:
        try:
            check_topic_name(name)
            error: TidemillError = denial or UnknownTopicOrPartition()
        except TidemillError as bad:
            error = bad
        return call.part(kind, error_code=error_code(error), name=name), 0, 0
    infos = topic.partitions[start : start + limit]
    partitions = tuple(
        call.part(
            "DescribeTopicPartitionsResponsePartition",
            **partition_fields(call, topic, info),
            # Java clients fail on null here.
            eligible_leader_replicas=(),
            last_known_elr=(),
        )
        for info in infos
    )
    part = call.part(
        kind,
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=partitions,
        topic_authorized_operations=topic_operations(call, name, asked=True),
    )
    return part, len(infos), len(topic.partitions) - start - len(infos)
