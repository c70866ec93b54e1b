"""Offsets in the log: found by time (ListOffsets) or by epoch (OffsetForLeaderEpoch), and moved (DeleteRecords)."""

import asyncio
from typing import Any

from tidemill.model.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    PolicyViolation,
    TidemillError,
    UnknownLeaderEpoch,
    UnsupportedVersion,
)
from tidemill.model.topics import refuse_internal
from tidemill.servers.kafka.api import Api, Call, error_code
from tidemill.streams.partition import FoundOffset, Partition

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


async def list_offsets(call: Call, request: Any) -> Any:
    """The offset that each partition has at a time, or at one of its ends."""
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
            raise InvalidRequest("a partition is asked for twice")
        if asked.timestamp < 0 and call.version < _SINCE_VERSION.get(asked.timestamp, call.version + 1):
            raise UnsupportedVersion(f"timestamp {asked.timestamp} in version {call.version}")
        partition = call.broker.partition(topic, asked.partition_index)
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
        partition.check_end_known()
    epoch = partition.leader_epoch
    if timestamp == LATEST:
        return FoundOffset(partition.last_stable_offset if committed else partition.high_watermark, -1, epoch)
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return FoundOffset(partition.log_start_offset, -1, epoch)
    if timestamp == MAX_TIMESTAMP:
        return await partition.offset_of_max_timestamp(committed=committed)
    if timestamp == LAST_TIERED:
        return _NOTHING
    return await partition.offset_at(timestamp, committed=committed)


def _check_epoch(partition: Partition, epoch: int) -> None:
    if epoch != _NO_EPOCH and epoch < partition.leader_epoch:
        raise FencedLeaderEpoch
    if epoch > partition.leader_epoch:
        raise UnknownLeaderEpoch


async def offset_for_leader_epoch(call: Call, request: Any) -> Any:
    """Where an epoch ends, for a client that checks whether its offset survived a change of leaders."""
    topics = []
    async for topic in call.in_slices(request.topics):
        ends = [_epoch_end(call, topic.topic, part) async for part in call.in_slices(topic.partitions)]
        topics.append(call.part("OffsetForLeaderTopicResult", topic=topic.topic, partitions=tuple(ends)))
    return call.response(topics=tuple(topics))


def _epoch_end(call: Call, topic: str, asked: Any) -> Any:
    error: TidemillError | None = None
    epoch, end_offset = -1, -1
    try:
        partition = call.broker.partition(topic, asked.partition)
        _check_epoch(partition, asked.current_leader_epoch)
        epoch, end_offset = partition.end_of_epoch(asked.leader_epoch)
    except TidemillError as caught:
        error = caught
    return call.part(
        "EpochEndOffset",
        error_code=error_code(error),
        partition=asked.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )


async def delete_records(call: Call, request: Any) -> Any:
    """Let logs begin later."""
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
        refuse_internal(topic)
        partition = call.broker.partition(topic, asked.partition_index)
        if not partition.settings.deleted:
            raise PolicyViolation(f"{topic} is only compacted: it keeps the last record of every key")
        low_watermark = await partition.delete_records(asked.offset)
    except TidemillError as caught:
        error = caught
    return call.part(
        "DeleteRecordsPartitionResult",
        partition_index=asked.partition_index,
        low_watermark=low_watermark,
        error_code=error_code(error),
    )


APIS = [
    Api(key=2, versions=(1, 10), handle=list_offsets),
    Api(key=21, versions=(0, 2), handle=delete_records),
    Api(key=23, versions=(2, 4), handle=offset_for_leader_epoch),
]
