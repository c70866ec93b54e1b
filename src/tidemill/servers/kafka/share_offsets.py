"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets: the offsets of share groups.

Only the offsets of a group without members can be changed: its leaders then read the new state.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidemill.cluster.core.image import Topic
from tidemill.groups.core.entries import NO_PARTITIONS, Partitions
from tidemill.model.errors import GroupIdNotFound, InvalidRequest, TidemillError, UnknownTopicOrPartition
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.kafka.api import Call, error_code, error_message
from tidemill.shares.core.durable_state import NO_START, ShareKey

if TYPE_CHECKING:
    from kio.schema.alter_share_group_offsets.v0.request import AlterShareGroupOffsetsRequest
    from kio.schema.alter_share_group_offsets.v0.response import AlterShareGroupOffsetsResponse
    from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest
    from kio.schema.delete_share_group_offsets.v0.response import DeleteShareGroupOffsetsResponse
    from kio.schema.describe_share_group_offsets.v1.request import DescribeShareGroupOffsetsRequest
    from kio.schema.describe_share_group_offsets.v1.response import DescribeShareGroupOffsetsResponse

UNKNOWN = -1
NO_ID = UUID(int=0)
_TOPIC = ResourceType.TOPIC


async def describe_share_group_offsets(
    call: Call["DescribeShareGroupOffsetsResponse"], request: "DescribeShareGroupOffsetsRequest"
) -> "DescribeShareGroupOffsetsResponse":
    """Where each group has got to, and how many records it has not done; null asks for all topics."""
    groups = []
    async for asked in call.in_slices(request.groups):
        topics: list[Any] = []
        failure: TidemillError | None = None
        try:
            call.check(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id)
            shared = _shared(call, asked.group_id)
            wanted = _all_of(call, shared) if asked.topics is None else _named(asked.topics)
            topics = [
                await _described(call, asked.group_id, shared, name, indexes)
                async for name, indexes in call.in_slices(wanted.items())
            ]
        except TidemillError as error:
            failure = error
        groups.append(
            call.part(
                "DescribeShareGroupOffsetsResponseGroup",
                group_id=asked.group_id,
                topics=tuple(topics),
                error_code=error_code(failure),
                error_message=error_message(failure),
            )
        )
    return call.response(groups=tuple(groups))


def _shared(call: Call, group_id: str) -> Partitions:
    """The partitions with share state; a group that does not exist has none, as in Kafka."""
    try:
        return call.broker.groups.shared_partitions(group_id)
    except GroupIdNotFound:
        return NO_PARTITIONS


def _named(topics: Iterable[Any]) -> dict[str, list[int]]:
    return {topic.topic_name: list(dict.fromkeys(topic.partitions)) for topic in topics}


def _all_of(call: Call, shared: Partitions) -> dict[str, list[int]]:
    """The partitions with share state, of topics that exist and that the client may describe."""
    found: dict[str, list[int]] = {}
    for topic_id, index in sorted(shared):
        name = call.broker.view.topic_name(topic_id)
        if name is not None and call.allows(Operation.DESCRIBE, _TOPIC, name):
            found.setdefault(name, []).append(index)
    return found


async def _described(call: Call, group_id: str, shared: Partitions, name: str, indexes: list[int]) -> Any:
    topic = call.broker.view.topic(name)
    failure: TidemillError | None = call.denial(Operation.DESCRIBE, _TOPIC, name)
    parts = []
    async for index in call.in_slices(indexes):
        start_offset, epoch, lag, error = UNKNOWN, 0, UNKNOWN, failure
        try:
            if error is None:
                place = _place(topic, name, index)
                if place in shared:
                    found = await call.broker.share_states.summary(ShareKey(group_id, *place))
                    start_offset, epoch = found.start_offset, found.leader_epoch
                    lag = _lag(call, name, index, start_offset, found.finished)
        except TidemillError as caught:
            error = caught
        parts.append(
            call.part(
                "DescribeShareGroupOffsetsResponsePartition",
                partition_index=index,
                start_offset=start_offset,
                leader_epoch=epoch,
                lag=lag,
                error_code=error_code(error),
                error_message=error_message(error),
            )
        )
    return call.part(
        "DescribeShareGroupOffsetsResponseTopic",
        topic_name=name,
        topic_id=NO_ID if topic is None or failure is not None else topic.topic_id,
        partitions=tuple(parts),
    )


def _lag(call: Call, topic: str, index: int, start_offset: int, finished: int) -> int:
    """How many records are not done; -1 if the group has not begun, or this broker has no replica."""
    replica = call.broker.partitions.find(topic, index)
    if start_offset == NO_START or replica is None:
        return UNKNOWN
    return max(0, replica.high_watermark - max(start_offset, replica.log_start_offset) - finished)


def _place(topic: Topic | None, name: str, index: int) -> tuple[UUID, int]:
    if topic is None or not 0 <= index < len(topic.partitions):
        raise UnknownTopicOrPartition(f"there is no partition {name[:60]}-{index}")
    return topic.topic_id, index


async def alter_share_group_offsets(
    call: Call["AlterShareGroupOffsetsResponse"], request: "AlterShareGroupOffsetsRequest"
) -> "AlterShareGroupOffsetsResponse":
    """Let a group without members begin at other offsets; each partition has its own result."""
    call.check(Operation.READ, ResourceType.GROUP, request.group_id)
    errors: dict[tuple[str, int], TidemillError | None] = {}

    async def alter(shared: Partitions) -> Partitions:
        for topic in request.topics:
            async for part in call.in_slices(topic.partitions):
                place = topic.topic_name, part.partition_index
                try:
                    call.check(Operation.READ, _TOPIC, topic.topic_name)
                    if part.start_offset < 0:
                        raise InvalidRequest(f"offset {part.start_offset} is negative")
                    where = _place(call.broker.view.topic(topic.topic_name), *place)
                    await call.broker.share_states.initialize(ShareKey(request.group_id, *where), part.start_offset)
                    shared |= {where}
                    errors[place] = None
                except TidemillError as error:
                    errors[place] = error
        return shared

    await call.broker.groups.change_share_state(request.group_id, alter)
    call.changed("share_offsets_altered", group=request.group_id)
    responses = []
    for topic in request.topics:
        parts = [
            call.part(
                "AlterShareGroupOffsetsResponsePartition",
                partition_index=part.partition_index,
                error_code=error_code(errors[topic.topic_name, part.partition_index]),
                error_message=error_message(errors[topic.topic_name, part.partition_index]),
            )
            for part in topic.partitions
        ]
        responses.append(_response_topic(call, "AlterShareGroupOffsetsResponseTopic", topic, partitions=tuple(parts)))
    return call.response(responses=tuple(responses))


async def delete_share_group_offsets(
    call: Call["DeleteShareGroupOffsetsResponse"], request: "DeleteShareGroupOffsetsRequest"
) -> "DeleteShareGroupOffsetsResponse":
    """Forget what a group without members has done with topics; each topic has its own result."""
    call.check(Operation.DELETE, ResourceType.GROUP, request.group_id)
    errors: dict[str, TidemillError | None] = {}

    async def delete(shared: Partitions) -> Partitions:
        async for topic in call.in_slices(request.topics):
            name = topic.topic_name
            try:
                call.check(Operation.READ, _TOPIC, name)
                known = call.broker.view.topic(name)
                if known is None:
                    raise UnknownTopicOrPartition(f"there is no topic {name[:60]}")
                places = frozenset(place for place in shared if place[0] == known.topic_id)
                await call.broker.share_states.remove(request.group_id, places)
                shared -= places
                errors[name] = None
            except TidemillError as error:
                errors[name] = error
        return shared

    await call.broker.groups.change_share_state(request.group_id, delete)
    call.changed("share_offsets_deleted", group=request.group_id)
    responses = [
        _response_topic(
            call,
            "DeleteShareGroupOffsetsResponseTopic",
            topic,
            error_code=error_code(errors[topic.topic_name]),
            error_message=error_message(errors[topic.topic_name]),
        )
        for topic in request.topics
    ]
    return call.response(responses=tuple(responses))


def _response_topic(call: Call, kind: str, asked: Any, **fields: Any) -> Any:
    name = asked.topic_name
    topic = call.broker.view.topic(name) if call.allows(Operation.DESCRIBE, _TOPIC, name) else None
    return call.part(kind, topic_name=name, topic_id=NO_ID if topic is None else topic.topic_id, **fields)
