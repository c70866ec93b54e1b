"""Scheduled records in the log: appended when they are due, and found again after a crash."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import structlog

from tidemill.broker.scheduling.plan import MESSAGE, Origin, delivered_seq, read_waiting
from tidemill.cluster.core.image import Topic
from tidemill.model.errors import UnknownTopicOrPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.streams.partition import Partition
from tidemill.timelines.core.message import Message

SCAN_BYTES = 1024 * 1024
BATCH_OVERHEAD_BYTES = 200

log = structlog.get_logger(__name__)


class Streams(Protocol):
    """What scheduling needs of the broker."""

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""

    def partition(self, topic: str, index: int) -> Partition:
        """The partition; UnknownTopicOrPartition when it is not here."""


class Due(NamedTuple):
    """A scheduled record whose time has come."""

    seq: int
    size: int
    record: NewRecord
    origin: Origin | None


def by_partition(messages: Iterable[Message], now_ms: int) -> dict[int, list[Due]]:
    """Due messages as records, each with its mark, by the partition they belong to."""
    found: defaultdict[int, list[Due]] = defaultdict(list)
    for message in messages:
        index, record, origin = read_waiting(message.body or b"")
        mark = (MESSAGE, f"{message.id}@{message.seq}".encode())
        due = NewRecord(record.key, record.value, (*record.headers, mark), now_ms)
        found[index].append(Due(message.seq, message.size, due, origin))
    return found


async def deliver(streams: Streams, topic: str, index: int, entries: Sequence[Due]) -> AsyncIterator[Sequence[Due]]:
    """Append due records to their partition, piece by piece; each piece that is done with, when it is durable."""
    try:
        partition = streams.partition(topic, index)
    except UnknownTopicOrPartition:
        log.warning("scheduled_partition_gone", topic=topic, partition=index, messages=len(entries))
        yield entries
        return
    for piece in _in_pieces(entries, partition.settings.max_message_bytes):
        await partition.append_own(build_batch([one.record for one in piece]))
        yield piece


def _in_pieces(entries: Sequence[Due], bytes_max: int) -> Iterator[list[Due]]:
    piece: list[Due] = []
    size = 0
    for entry in entries:
        grown = entry.size + BATCH_OVERHEAD_BYTES
        if piece and size + grown > bytes_max:
            yield piece
            piece, size = [], 0
        piece.append(entry)
        size += grown
    if piece:
        yield piece


async def delivered_since(partitions: Iterable[Partition], since_ms: int) -> set[int]:
    """The numbers of the scheduled records that were appended at that time or later."""
    found: set[int] = set()
    for partition in partitions:
        offset = (await partition.offset_at(since_ms)).offset
        while 0 <= offset < partition.high_watermark:
            piece = await partition.read(offset, SCAN_BYTES)
            for chunk in piece.records:
                view = memoryview(chunk)
                for position, header in iter_headers(chunk):
                    offset = header.next_offset
                    if header.count and not header.control:
                        records = read_records(view[position : position + header.size])
                        found.update(seq for one in records if (seq := delivered_seq(one)) is not None)
            if not piece.records:
                break
    return found
