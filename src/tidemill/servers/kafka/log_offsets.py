"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: find offsets by time or epoch, and move the log start."""

import asyncio
from typing import TYPE_CHECKING, Any

from tidemill.model.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    PolicyViolation,
    TidemillError,
    UnknownLeaderEpoch,
    UnsupportedVersion,
)
from tidemill.model.topics import refuse_internal
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.kafka.api import Call, error_code
from tidemill.streams.partition import FoundOffset, Partition

if TYPE_CHECKING:
    from kio.schema.delete_records.v2.request import DeleteRecordsRequest
    from kio.schema.delete_records.v2.response import DeleteRecordsResponse
    from kio.schema.list_offsets.v10.request import ListOffsetsRequest
    from kio.schema.list_offsets.v10.response import ListOffsetsResponse
    from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest
    from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LAST_TIERED = -5
_SINCE_VERSION = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LAST_TIERED: 9}
DELETIONS_AT_ONCE = 100
_NO_EPOCH = -1
_NOTHING = FoundOffset(-1, -1, -1)
_COMMITTED = 1


async def list_offsets(call: Call["ListOffsetsResponse"], request: "ListOffsetsRequest") -> "ListOffsetsResponse":
    """The offset of each partition at a time, or at one of its ends."""
    committed = getattr(request, "isolation_level", 0) == _COMMITTED
    asked: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    async for topic in call.in_slices(request.topics):
        async for part in call.in_slices(topic.partitions):
            key = (topic.name, part.partition_index)
            (repeated if key in asked else asked).add(key)
    topics = []
    async for topic in call.in_slices(request.topics):
        parts = [
            await _listed(call, topic.name, part, committed=committed, repeated=repeated)
            async for part in call.in_slices(topic.partitions)
        ]
        topics.append(call.part("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(parts)))
    return call.response(topics=tuple(topics))


async def _listed(call: Call, topic: str, asked: Any, *, committed: bool, repeated: set[tuple[str, int]]) -> Any:
    error: TidemillError | None = None
    found = _NOTHING
    try:
        if (topic, asked.partition_index) in repeated:
            raise InvalidRequest(f"the request names {topic}-{asked.partition_index} twice; name it once")
        call.check(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        if asked.timestamp < 0 and call.version < _SINCE_VERSION.get(asked.timestamp, call.version + 1):
            raise UnsupportedVersion(f"timestamp {asked.timestamp} is not supported in version {call.version}")
        partition = call.broker.view.partition(topic, asked.partition_index)
        _check_epoch(partition, getattr(asked, "current_leader_epoch", _NO_EPOCH))
        found = await _find(partition, asked.timestamp, committed=committed)
    except TidemillError as caught:
        error = caught
    return call.part(
        "ListOffsetsPartitionResponse",
        partition_index=asked.partition_index,
        error_code=error_code(error),
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


async def _find(partition: Partition, timestamp: int, *, committed: bool) -> FoundOffset:
    partition.check_leads()
    if timestamp not in {EARLIEST, EARLIEST_LOCAL}:
        partition.leader.check_end_known()
    epoch = partition.leader_epoch
    if timestamp == LATEST:
        return FoundOffset(partition.last_stable_offset if committed else partition.high_watermark, -1, epoch)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return FoundOffset(partition.log_start_offset, -1, epoch)
    if timestamp == MAX_TIMESTAMP:
        return await partition.reader.offset_of_max_timestamp(committed=committed)
    if timestamp == LAST_TIERED:
        return _NOTHING
    return await partition.reader.offset_at(timestamp, committed=committed)


def _check_epoch(partition: Partition, epoch: int) -> None:
    if epoch != _NO_EPOCH and epoch < partition.leader_epoch:
        raise FencedLeaderEpoch
    if epoch > partition.leader_epoch:
        raise UnknownLeaderEpoch


async def offset_for_leader_epoch(
    call: Call["OffsetForLeaderEpochResponse"], request: "OffsetForLeaderEpochRequest"
) -> "OffsetForLeaderEpochResponse":
    """The end offset of an epoch; clients use it to find truncation after a change of leader."""
    topics = []
    async for topic in call.in_slices(request.topics):
        ends = [_epoch_end(call, topic.topic, part) async for part in call.in_slices(topic.partitions)]
        topics.append(call.part("OffsetForLeaderTopicResult", topic=topic.topic, partitions=tuple(ends)))
    return call.response(topics=tuple(topics))


def _epoch_end(call: Call, topic: str, asked: Any) -> Any:
    error: TidemillError | None = None
    epoch, end_offset = -1, -1
    try:
        call.check(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        partition = call.broker.view.partition(topic, asked.partition)
        _check_epoch(partition, asked.current_leader_epoch)
        epoch, end_offset = partition.reader.end_of_epoch(asked.leader_epoch)
    except TidemillError as caught:
        error = caught
    return call.part(
        "EpochEndOffset",
        error_code=error_code(error),
        partition=asked.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )


async def delete_records(
    call: Call["DeleteRecordsResponse"], request: "DeleteRecordsRequest"
) -> "DeleteRecordsResponse":
    """Move the start of logs forward."""
    topics = []
    async for topic in call.in_slices(request.topics):
        parts: list[Any] = []
        async for start in call.in_slices(range(0, len(topic.partitions), DELETIONS_AT_ONCE)):
            some = topic.partitions[start : start + DELETIONS_AT_ONCE]
            parts += await asyncio.gather(*(_deleted(call, topic.name, part) for part in some))
        topics.append(call.part("DeleteRecordsTopicResult", name=topic.name, partitions=tuple(parts)))
    return call.response(topics=tuple(topics))


async def _deleted(call: Call, topic: str, asked: Any) -> Any:
    error: TidemillError | None = None
    low_watermark = -1
    try:
        call.check(Operation.DELETE, ResourceType.TOPIC, topic)
        refuse_internal(topic)
        partition = call.broker.view.partition(topic, asked.partition_index)
        if not partition.settings.deleted:
            raise PolicyViolation(
                f"records of {topic} cannot be deleted: cleanup.policy=compact keeps the last record of every key"
            )
        low_watermark = await partition.leader.delete_records(asked.offset)
        call.changed("records_deleted", topic=topic, partition=asked.partition_index, before=low_watermark)
    except TidemillError as caught:
        error = caught
    return call.part(
        "DeleteRecordsPartitionResult",
        partition_index=asked.partition_index,
        low_watermark=low_watermark,
        error_code=error_code(error),
    )
