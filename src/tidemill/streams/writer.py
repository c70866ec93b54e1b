"""Appends batches to the log: one writer per partition, with a bounded queue in front of it.

Most batches never queue. When no write is running, a small batch is validated, assigned offsets and written on the
event loop, without a task. A large batch is written on a thread while the event loop serves other partitions. Batches
that arrive during a write queue, and the next write takes them together. When the queue is full, producers wait in
arrival order. This is their backpressure, and a slow partition delays only its own producers.

Retention, checkpoints and role changes need exclusive access to the log (`exclusive`). They get it after the group that
is being written, however long the queue is. Otherwise producers that never pause would block retention until the disk
is full. One group is written between two exclusive sections.

The leader validates a batch just before it is written, not when it is queued. So its state is always the state of the
log plus the one group that is being written. When that write fails, the writer undoes the group in the leader's state,
and every producer of the group gets the error.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from tidemill.model.errors import KafkaError, KafkaStorageError, RequestTimedOut
from tidemill.records.header import BatchHeader, Buffer, place
from tidemill.streams.core.leader import Accepted, ControlMarker, Duplicate, Leader, Undo
from tidemill.streams.interface import AppendLog, StoredBatch
from tidemill.streams.replay import marker_in
from tidemill.streams.reservation import Reservation

QUEUE_BYTES_MAX = 16 * 1024 * 1024
QUEUE_BATCHES_MAX = 1024
GROUP_BYTES_MAX = 4 * 1024 * 1024
GROUP_BATCHES_MAX = 256  # well below IOV_MAX, which is 1024


class Placed(NamedTuple):
    """The position of a batch in the log."""

    base_offset: int
    next_offset: int
    append_time_ms: int


class _PendingBatch(NamedTuple):
    batch: bytearray | memoryview
    header: BatchHeader
    marker: ControlMarker | None
    done: asyncio.Future[Placed]


class _Group:
    """Batches that one write covers, with the outcome for each caller."""

    __slots__ = ("batches", "headers", "outcomes", "undos")

    def __init__(self) -> None:
        self.batches: list[Buffer] = []
        self.headers: list[BatchHeader] = []
        self.undos: list[Undo] = []
        self.outcomes: list[Placed | KafkaError] = []


class PartitionWriter:
    """Writes the batches of one partition in arrival order."""

    def __init__(
        self, log: AppendLog, leader: Leader, clock: Callable[[], int], on_written: Callable[[], None]
    ) -> None:
        self._log = log
        self._leader = leader
        self._clock = clock
        self._on_written = on_written
        self._queue: deque[_PendingBatch] = deque()
        self._queued_bytes = 0
        self.written_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._held = False
        self._claims = 0  # callers that wait in `exclusive`
        self._inline_bytes_max = log.inline_bytes_max
        self._gate = asyncio.Lock()
        self._at_gate = 0
        self._changed = asyncio.Event()
        self.reservation: Reservation | None = None

    async def write(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        marker: ControlMarker | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Placed:
        """Append the batch and return its position. For a duplicate, return the position of the first copy.

        Raise the error that rejected the batch. Raise RequestTimedOut when the write takes longer than `timeout_s`; the
        batch is still written.
        """
        placed = await self._write(batch, header, marker, timeout_s)
        reservation = self.reservation
        if reservation is not None and (reservation.waiting or placed.next_offset > reservation.due_offset):
            await reservation.cover(placed.next_offset)
        return placed

    async def _write(
        self, batch: bytearray | memoryview, header: BatchHeader, marker: ControlMarker | None, timeout_s: float | None
    ) -> Placed:
        if self._free and len(batch) <= self._inline_bytes_max:
            group = _Group()
            self._judge(group, batch, header, marker)
            if group.batches:
                try:
                    self._log.append(group.batches, group.headers, self._clock())
                except BaseException:
                    self._take_back(group)
                    raise
                self.written_bytes += len(batch)
                self._on_written()
            outcome = group.outcomes[0]
            if isinstance(outcome, KafkaError):
                raise outcome
            return outcome
        await self._wait_for_capacity()
        done: asyncio.Future[Placed] = asyncio.get_running_loop().create_future()
        self._queue.append(_PendingBatch(batch, header, marker, done))
        self._queued_bytes += len(batch)
        self._start()
        if timeout_s is None:
            return await done
        try:
            return await asyncio.wait_for(done, timeout_s)
        except TimeoutError:
            raise RequestTimedOut("the log did not write the records within the request timeout; retry") from None

    async def copy(self, batches: Sequence[StoredBatch]) -> None:
        """Append a leader's batches unchanged. The caller is a follower that holds the log (`exclusive`)."""
        for first, end in self._shares(batches):
            group = _Group()
            try:
                for header, batch in batches[first:end]:
                    group.undos.append(self._leader.accept(header, self._clock(), marker_in(header, batch)))
                    group.batches.append(batch)
                    group.headers.append(header)
                await self._append(group)
            except BaseException:
                self._take_back(group)
                raise

    def _shares(self, batches: Sequence[StoredBatch]) -> Iterator[tuple[int, int]]:
        """Split the batches into runs that fit into one write and one segment."""
        limit = min(GROUP_BYTES_MAX, self._log.settings.segment_bytes)
        first = size = 0
        for number, (header, _) in enumerate(batches):
            if number > first and (size + header.size > limit or number - first == GROUP_BATCHES_MAX):
                yield first, number
                first, size = number, 0
            size += header.size
        if first < len(batches):
            yield first, len(batches)

    async def settled(self) -> None:
        """Return when everything in the queue is written or rejected."""
        while self._task is not None or self._queue:
            await self._next_change()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Pause all writes. Meanwhile the leader's state equals the state of the log."""
        await self._hold()
        try:
            yield
        finally:
            self._held = False
            self._changed.set()
            self._start(in_turn=True)

    async def _hold(self) -> None:
        self._claims += 1
        try:
            while self._task is not None or self._held:
                await self._next_change()
            self._held = True
        finally:
            self._claims -= 1
            # Start the writes that waited for this caller, in case it gave up.
            self._start()

    async def _next_change(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])
        else:
            self._changed.clear()
            await self._changed.wait()

    @property
    def _free(self) -> bool:
        """Whether a batch may be written at once, because no earlier batch is waiting."""
        return self._task is None and not self._held and not self._queue and not self._at_gate

    def _full(self) -> bool:
        return self._queued_bytes >= QUEUE_BYTES_MAX or len(self._queue) >= QUEUE_BATCHES_MAX

    async def _wait_for_capacity(self) -> None:
        if not self._full() and not self._at_gate:
            return
        self._at_gate += 1
        try:
            async with self._gate:
                while self._full():
                    self._changed.clear()
                    await self._changed.wait()
        finally:
            self._at_gate -= 1

    def _start(self, *, in_turn: bool = False) -> None:
        """Write the queue. If a caller waits in `exclusive`, write only when it is the queue's turn."""
        if self._task is None and not self._held and self._queue and (in_turn or not self._claims):
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._queue:
                await self._write_group(self._take())
                if self._claims:
                    return
        finally:
            self._task = None
            self._changed.set()

    def _take(self) -> list[_PendingBatch]:
        """Take the oldest batches, as many as fit into one write and one segment."""
        limit = min(GROUP_BYTES_MAX, self._log.settings.segment_bytes)
        taken = [self._queue.popleft()]
        size = len(taken[0].batch)
        while self._queue and len(taken) < GROUP_BATCHES_MAX and size + len(self._queue[0].batch) <= limit:
            taken.append(self._queue.popleft())
            size += len(taken[-1].batch)
        self._queued_bytes -= size
        self._changed.set()
        return taken

    async def _write_group(self, taken: list[_PendingBatch]) -> None:
        group = _Group()
        try:
            for pending in taken:
                self._judge(group, pending.batch, pending.header, pending.marker)
            if group.batches:
                await self._append(group)
        except KafkaError as error:
            self._take_back(group)
            group.outcomes = [error] * len(taken)
        except Exception as error:  # noqa: BLE001 - the producers must get the error, whatever it is
            self._take_back(group)
            group.outcomes = [KafkaStorageError(repr(error))] * len(taken)
        for pending, outcome in zip(taken, group.outcomes, strict=True):
            if pending.done.done():
                continue
            if isinstance(outcome, KafkaError):
                pending.done.set_exception(outcome)
            else:
                pending.done.set_result(outcome)

    async def _append(self, group: _Group) -> None:
        now_ms = self._clock()
        size = sum(map(len, group.batches))
        if size > self._inline_bytes_max:
            await self._log.append_aside(group.batches, group.headers, now_ms)
        else:
            self._log.append(group.batches, group.headers, now_ms)
        self.written_bytes += size
        self._on_written()

    def _judge(
        self, group: _Group, batch: bytearray | memoryview, header: BatchHeader, marker: ControlMarker | None
    ) -> None:
        leader = self._leader
        verdict = leader.judge(header, marker)
        if isinstance(verdict, Accepted):
            base_offset = verdict.base_offset
            place(batch, 0, base_offset, leader.epoch)
            header = BatchHeader(base_offset, header[1], leader.epoch, *header[3:])
            group.undos.append(leader.accept(header, self._clock(), marker))
            group.batches.append(batch)
            group.headers.append(header)
            append_time = header.max_timestamp if header.log_append_time else -1
            group.outcomes.append(Placed(base_offset, base_offset + header.last_offset_delta + 1, append_time))
        elif isinstance(verdict, Duplicate):
            sent = verdict.sent
            group.outcomes.append(Placed(sent.base_offset, header.last_offset_delta + sent.base_offset + 1, sent[3]))
        else:
            group.outcomes.append(verdict.error)

    def _take_back(self, group: _Group) -> None:
        for undo in reversed(group.undos):
            self._leader.undo(undo)
