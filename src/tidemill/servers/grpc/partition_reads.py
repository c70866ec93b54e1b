"""Reads partitions for BrokerService: visible records, now or as soon as there are some.

Batches are decoded here, because gRPC clients expect records. Each is decoded once: an answer that has reached its
number of records still takes the rest of the batch, up to a number of bytes. Large and compressed batches are decoded
in a dedicated thread, one after the other. A batch of 1 MiB may hold millions of records, and other clients are served
meanwhile.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tidemill.broker.broker import BrokerNode
from tidemill.broker.metrics import FETCH
from tidemill.model.errors import CorruptMessage, TidemillError, UnreadableBatch, UnsupportedCompressionType
from tidemill.records.header import BatchHeader, Buffer
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.records.visibility import visible_batches
from tidemill.streams.admission import opened_in_place, run_aside
from tidemill.streams.partition import Partition
from tidemill.tracing.record_tracer import RecordTracer
from tidemill.wire.grpc import broker_pb2 as wire

END, BEGINNING = -1, -2
"""Special offsets that name a position."""
READ_BYTES_MAX = 1024 * 1024
"""Bytes of batches to read from one partition at a time."""
ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""The most bytes of keys, values and headers in one answer."""
RECORD_OVERHEAD_BYTES = 32
WAIT_MS_MAX = 60_000
_UNREADABLE = (CorruptMessage, UnsupportedCompressionType)


class ReadPosition(NamedTuple):
    """One partition and the offset to read from."""

    topic: str
    partition: int
    offset: int


class AnswerSpace:
    """The space that is left in an answer."""

    def __init__(self, records: int) -> None:
        self.records = records
        self.bytes = ANSWER_BYTES_MAX

    def take(self, record: Record) -> bool:
        """Whether the record fits; the first record of an answer always does."""
        size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
        is_first = self.bytes == ANSWER_BYTES_MAX
        if size > self.bytes and not is_first:
            return False
        self.records -= 1
        self.bytes -= size
        return True

    @property
    def left(self) -> int:
        """The number of records that another batch may add."""
        return max(0, self.records) if self.bytes > 0 else 0


async def read_partitions(
    broker: BrokerNode, wanted: Sequence[ReadPosition], *, max_records: int, max_wait_ms: int, committed: bool = True
) -> list[wire.PartitionRecords]:
    """Return news of the partitions: records, an error, or a new position. None on a timeout."""
    loop = asyncio.get_running_loop()
    readings = [_PartitionRead(broker, one, committed=committed) for one in wanted]
    grown = asyncio.Event()
    ends: list[Callable[[], None]] = []
    deadline = loop.time() + min(max(max_wait_ms, 0), WAIT_MS_MAX) / 1_000
    try:
        ends.extend(end for reading in readings if (end := reading.watch(grown.set)) is not None)
        while True:
            grown.clear()
            space = AnswerSpace(max(1, max_records))
            for reading in readings:
                await reading.read(space)
            left_s = deadline - loop.time()
            if any(reading.has_news for reading in readings) or left_s <= 0:
                for reading in readings:
                    reading.count(broker)
                return [reading.answer for reading in readings if reading.has_news or reading.moved]
            try:
                async with asyncio.timeout(left_s):
                    await grown.wait()
            except TimeoutError:
                deadline = loop.time()  # a timer may fire slightly early: this read is the last
    finally:
        for end in ends:
            end()


class _PartitionRead:
    """One partition, and what was read from it so far."""

    def __init__(self, broker: BrokerNode, wanted: ReadPosition, *, committed: bool) -> None:
        self._wanted = wanted
        self._committed = committed
        self._partition: Partition | None = None
        self._error: TidemillError | None = None
        self._tracer = None if broker.tracer is None else broker.tracer.records
        self._chunks: Sequence[Buffer] = ()
        self._started_ns = 0 if self._tracer is None else self._tracer.now_ns()
        self.answer = wire.PartitionRecords(topic=wanted.topic, partition=wanted.partition, next_offset=wanted.offset)
        try:
            self._partition = broker.view.partition(wanted.topic, wanted.partition)
        except TidemillError as error:
            self._refuse(error)

    @property
    def has_news(self) -> bool:
        """Whether there is a result that a client waits for."""
        return bool(self.answer.records or self.answer.error)

    @property
    def moved(self) -> bool:
        """Whether the next read starts at another offset."""
        return self.answer.next_offset != self._wanted.offset

    def count(self, broker: BrokerNode) -> None:
        """Count the result for the metrics of the topic."""
        if self.answer.records:
            broker.metrics.topic(self._wanted.topic).fetched(self.answer.ByteSize())
            if self._tracer is not None:
                self._trace(self._tracer)
        elif self._error is not None:
            broker.note_topic_error(self._wanted.topic, FETCH, type(self._error))

    def _trace(self, tracer: RecordTracer) -> None:
        wanted = self._wanted
        tracer.fetched(
            wanted.topic, wanted.partition, self._chunks, self._started_ns, before_offset=self.answer.next_offset
        )

    def watch(self, wake: Callable[[], None]) -> Callable[[], None] | None:
        """Call `wake` when the partition grows."""
        return None if self._partition is None else self._partition.reader.watch(wake)

    async def read(self, space: AnswerSpace) -> None:
        """Read as many records as fit."""
        partition = self._partition
        if partition is None or not space.left:
            return
        try:
            offset = self._place(partition)
            found = await partition.reader.read(offset, READ_BYTES_MAX, committed=self._committed)
            if self._tracer is not None:
                self._chunks = found.records
            self.answer.high_watermark = found.high_watermark
            self.answer.next_offset = offset
            for header, batch in visible_batches(found.records, found.aborted):
                try:
                    if batch is not None and not await self._open(header, batch, offset, space):
                        return
                except _UNREADABLE as error:
                    self._stop_before(header, error)
                    return
                self.answer.next_offset = max(offset, header.next_offset)
                if not space.left:
                    return
        except TidemillError as error:
            self._refuse(error)

    async def _open(self, header: BatchHeader, batch: memoryview, offset: int, space: AnswerSpace) -> bool:
        take = partial(self._take, batch, offset, space)
        return take() if opened_in_place(header) else await run_aside(take)

    def _take(self, batch: memoryview, offset: int, space: AnswerSpace) -> bool:
        """Take the records from the offset on; False when one did not fit."""
        for record in read_records(batch):
            if record.offset < offset:
                continue
            if not space.take(record):
                return False
            self.answer.records.append(to_wire(record))
            self.answer.next_offset = record.offset + 1
        return True

    def _stop_before(self, header: BatchHeader, error: TidemillError) -> None:
        """Stop at a batch that cannot be read. Records before it are returned first; the next read reports it."""
        if not self.answer.records:
            wanted = self._wanted
            offsets = header.base_offset, header.last_offset
            self._refuse(UnreadableBatch.at(wanted.topic, wanted.partition, *offsets, error))

    def _place(self, partition: Partition) -> int:
        offset = self.answer.next_offset
        if offset == BEGINNING:
            return partition.log_start_offset
        if offset == END:
            return partition.last_stable_offset if self._committed else partition.high_watermark
        return offset

    def _refuse(self, error: TidemillError) -> None:
        self._error = error
        self.answer.error, self.answer.reason = type(error).__name__, str(error)


def to_wire(record: Record) -> wire.Record:
    """Convert a record for clients."""
    return wire.Record(
        key=record.key,
        value=record.value,
        headers=[wire.Header(key=name, value=value) for name, value in record.headers],
        timestamp_ms=max(0, record.timestamp),
        offset=record.offset,
    )
