"""A share partition on the leader of its partition: reads, locks, acknowledgements, and its timer.

`core/share_partition.py` decides. An acknowledgement is stored before it is answered; changes that need not be waited
for (locks that ended) are stored by the same queue, so the coordinator gets all changes in their order.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from tidemill.model.errors import (
    FencedLeaderEpoch,
    FencedStateEpoch,
    KafkaError,
    NotLeaderOrFollower,
    TidemillError,
    UnknownTopicOrPartition,
)
from tidemill.records.header import BatchHeader, Buffer
from tidemill.records.visibility import visible_batches
from tidemill.shares.core.acknowledgements import AckBatch
from tidemill.shares.core.delivery_policy import DeliveryPolicy
from tidemill.shares.core.durable_state import ShareKey, StateWrite
from tidemill.shares.core.in_flight import InFlight, in_flight, records_left
from tidemill.shares.core.share_partition import (
    NEVER_MS,
    AcquiredRange,
    LogExtent,
    SharePartition,
    StateBatch,
)
from tidemill.shares.counts import ShareCounts
from tidemill.shares.interface import ShareLog, ShareStateStore

READS_MAX = 20
"""How many reads without a free record one fetch makes."""
REPLACED = (FencedLeaderEpoch, FencedStateEpoch, UnknownTopicOrPartition)

log = structlog.get_logger("tidemill.shares")


class SharePolicy(NamedTuple):
    """The settings of a group."""

    delivery: DeliveryPolicy
    committed: bool
    may_renew: bool


class AcquireLimits(NamedTuple):
    """How much one fetch takes."""

    max_bytes: int
    records_max: int
    batch_size: int
    is_exact: bool


class AcquiredRecords(NamedTuple):
    """The batches of a fetch, and which of their records the member got."""

    chunks: list[Buffer]
    ranges: list[AcquiredRange]

    @property
    def size(self) -> int:
        """Bytes of the batches."""
        return sum(map(len, self.chunks))

    @property
    def count_records(self) -> int:
        """The number of acquired records."""
        return sum(each.last - each.first + 1 for each in self.ranges)


NOTHING = AcquiredRecords([], [])


class LiveSharePartition:
    """One share partition in one epoch of its leader."""

    def __init__(
        self,
        key: ShareKey,
        core: SharePartition,
        shared_log: ShareLog,
        store: ShareStateStore,
        policy: Callable[[], SharePolicy],
        steady_ms: Callable[[], int],
        counts: ShareCounts,
    ) -> None:
        self._counts = counts
        self.key = key
        self.core = core
        self.log = shared_log
        self.leader_epoch = shared_log.leader_epoch
        self.is_closed = False
        self._store = store
        self._policy = policy
        self._steady_ms = steady_ms
        self._fetching = asyncio.Lock()
        self._waiters: set[Callable[[], None]] = set()
        self._queue: list[tuple[Sequence[StateBatch], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = NEVER_MS

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads in the epoch in which the state was read."""
        return not self.is_closed and self.log.leads and self.log.leader_epoch == self.leader_epoch

    @property
    def lag(self) -> int:
        """How many records the group has not done."""
        end_offset = self.log.end_offset(committed=False)
        return records_left(end_offset, self.log.start_offset, self.core.start_offset, self.core.finished)

    @property
    def in_flight(self) -> InFlight:
        """The records that were delivered and are not done."""
        return in_flight(self.core.ranges(), self._steady_ms(), self._policy().delivery.lock_ms)

    async def acquire(self, member: str, limits: AcquireLimits) -> AcquiredRecords:
        """Free records for a member, if there are any."""
        async with self._fetching:
            for _ in range(READS_MAX):
                self._check_current()
                policy = self._policy()
                self.core.trim(self.log.start_offset)
                offset = self.core.next_offset()
                if not self.core.has_room(policy.delivery) or offset >= self.log.end_offset(committed=policy.committed):
                    return NOTHING
                found = await self.log.read(offset, limits.max_bytes, committed=policy.committed)
                self._check_current()
                batches = list(visible_batches(found.chunks, found.aborted))
                if not batches:
                    return NOTHING
                extents = [LogExtent(head.base_offset, head.last_offset, body is not None) for head, body in batches]
                acquired = self.core.acquire(
                    member,
                    extents,
                    offset,
                    self._steady_ms(),
                    policy.delivery,
                    records_max=limits.records_max,
                    batch_size=limits.batch_size,
                    is_exact=limits.is_exact,
                )
                self._set_timer()
                if acquired:
                    taken = AcquiredRecords(_covering(batches, acquired), acquired)
                    self._counts.deliver(acquired)
                    return taken
        return NOTHING

    async def acknowledge(self, member: str, batches: Sequence[AckBatch]) -> None:
        """Take an acknowledgement; it is stored when this returns. The caller does not cancel this."""
        self._check_current()
        settlement = self.core.settle(member, batches, self._steady_ms(), self._policy().delivery)
        self._set_timer()
        if not settlement.batches:
            return
        try:
            await self._stored(settlement.batches)
        except TidemillError:
            self.core.roll_back(settlement)
            self._set_timer()
            raise
        self.core.commit(settlement)
        self._counts.settle(settlement.batches)
        self._changed()

    def release(self, member: str, *, was_delivered: bool) -> None:
        """End all locks of a member that left."""
        changed = self.core.release(member, self._steady_ms(), self._policy().delivery, was_delivered=was_delivered)
        self._counts.leave(changed)
        self._note(changed)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when records may be free; the result stops the watch."""
        self._waiters.add(wake)
        end_log = self.log.watch(wake)

        def end() -> None:
            self._waiters.discard(wake)
            end_log()

        return end

    def close(self) -> None:
        """Serve no more: another leader, or another state, takes over. Locks end with it."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    async def settled(self) -> None:
        """Return when everything that was to be stored is stored, or has failed."""
        while self._writing is not None:
            await asyncio.wait([self._writing])

    def _check_current(self) -> None:
        if not self.is_current:
            self.close()
            raise NotLeaderOrFollower("this broker does not lead the partition any more; refresh the metadata")

    # -- storing ------------------------------------------------------------------------------------------------------

    def _stored(self, batches: Sequence[StateBatch]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((batches, done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return done

    async def _write(self) -> None:
        """Store what waits, many acknowledgements in one write."""
        waiting: list[tuple[Sequence[StateBatch], asyncio.Future[None]]] = []
        try:
            while self._queue:
                waiting, self._queue = self._queue, []
                batches = tuple(batch for some, _ in waiting for batch in some)
                change = StateWrite(self.core.state_epoch, self.leader_epoch, self.core.start_offset, batches)
                failure: KafkaError | None = None
                try:
                    await self._store.write(self.key, change)
                except KafkaError as error:
                    failure = error
                    if isinstance(error, REPLACED):
                        self.close()
                        failure = NotLeaderOrFollower(f"the share partition was taken over: {error}")
                for _, done in waiting:
                    _resolve(done, failure)
        finally:
            self._writing = None
            stopped, self._queue = [*waiting, *self._queue], []
            for _, done in stopped:  # those that were answered stay so
                _resolve(done, NotLeaderOrFollower("the share partition stopped"))

    def _note(self, changed: Sequence[StateBatch]) -> None:
        """Store a change that no client waits for."""
        if changed and not self.is_closed:
            self._stored(changed).add_done_callback(_report)
        self._changed()

    def _changed(self) -> None:
        self._set_timer()
        self._wake()

    def _wake(self) -> None:
        for wake in list(self._waiters):
            wake()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        due_ms = self.core.next_deadline_ms()
        if due_ms >= self._timer_ms or self.is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_s = max(0, due_ms - self._steady_ms()) / 1_000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        if self.is_current:
            changed = self.core.tick(self._steady_ms(), self._policy().delivery)
            self._counts.expire(changed)
            self._note(changed)


def _covering(batches: list[tuple[BatchHeader, memoryview | None]], ranges: list[AcquiredRange]) -> list[Buffer]:
    """The batches that have an acquired record."""
    chunks: list[Buffer] = []
    position = 0
    for header, body in batches:
        while position < len(ranges) and ranges[position].last < header.base_offset:
            position += 1
        if position == len(ranges):
            break
        if body is not None and ranges[position].first <= header.last_offset:
            chunks.append(body)
    return chunks


def _resolve(done: asyncio.Future[None], failure: KafkaError | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)
        done.exception()  # marks the error as retrieved


def _report(done: asyncio.Future[None]) -> None:
    if not done.cancelled() and done.exception() is not None:
        log.warning("share_state_not_stored", error=str(done.exception()))
