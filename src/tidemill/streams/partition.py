"""The shell of a partition: what doors, coordinators and replicas call.

The walk of a batch: it is checked (`BatchAdmission`), judged and placed (`core.leader`, by the writer), written
(`StreamLog`), and for acks=all flushed together with others (`Flusher`) and copied by all replicas in sync (`LeaderReplication`).

A partition that has no other replica leads from the start: its high watermark moves with the write, and acks=all is
answered after the flush. In a cluster `lead` and `follow` say what this broker is to the partition in each epoch. A
leader's high watermark is what all in-sync replicas have for good. A follower asks (`ask`) and takes in what its
leader answered (`take`), byte for byte; producers, transactions and epochs are the same on all replicas because all
learn them from the same batches.

Everything runs on one event loop; between two awaits nothing changes. A partition has no task of its own while it is
idle. Once the disk has failed a flush, every call raises KafkaStorageError until the broker is started anew.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from tidemill.model.errors import KafkaStorageError, NotLeaderOrFollower, OffsetNotAvailable, OffsetOutOfRange
from tidemill.model.topic_settings import TopicSettings
from tidemill.records.build import end_marker
from tidemill.records.header import BatchHeader, Buffer, iter_headers, read_header
from tidemill.streams.admission import BatchAdmission, Verify
from tidemill.streams.core.aborted import AbortedRange, AbortedTransaction
from tidemill.streams.core.epochs import UNKNOWN as UNKNOWN_EPOCH
from tidemill.streams.core.follower import Diverged, OutOfRange, Question, compare, question, still_true
from tidemill.streams.core.insync import InSync, Lag, Term
from tidemill.streams.core.leader import ControlMarker, Duplicate, Leader, Refused
from tidemill.streams.core.producers import EXPIRY_MS, ProducerSnapshot
from tidemill.streams.core.waiters import Waiters
from tidemill.streams.flusher import Flusher
from tidemill.streams.follower_log import Copied, FollowerLog
from tidemill.streams.interface import StreamLog
from tidemill.streams.leader_replication import Agreement, LeaderReplication
from tidemill.streams.maintenance import ALL_CHORES, MaintenanceTasks, PartitionMaintenance, Random
from tidemill.streams.reservation import Reservation
from tidemill.streams.search import NOT_FOUND, FoundOffset, first_at, first_with_largest
from tidemill.streams.writer import PartitionWriter, Placed

ACKS_ALL = -1
HIGH_WATERMARK = -1
VERSION_NEWEST = 99
FLUSHED = "fsync"

__all__ = ["NOT_FOUND", "Appended", "FoundOffset", "Partition", "ReadResult"]

Clock = Callable[[], int]


class Appended(NamedTuple):
    """Where a batch is; `log_append_time_ms` is -1 where records carry their producer's time."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class ReadResult(NamedTuple):
    """Whole batches in order, and where the partition stood when they were read."""

    records: list[Buffer]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction]


class Partition:
    """One partition, as its leader or as a follower."""

    def __init__(
        self,
        log: StreamLog,
        topic: str,
        index: int,
        leader: Leader,
        clock: Clock,
        one_cleaning: asyncio.Lock,
        random: Random,
    ) -> None:
        self.topic = topic
        self.index = index
        self.settings = log.settings
        self._log = log
        self._leader = leader
        self._clock = clock
        self._closed = False
        self._term: Term | None = None
        self._leading: LeaderReplication | None = None
        self._waiters = Waiters()
        self._replicas = Waiters()
        self._writer = PartitionWriter(log, leader, clock, self._on_written)
        self._flusher = Flusher(log, log.end_offset, self._on_flushed)
        self._high_watermark = log.end_offset
        self._stable_offset = leader.stable_offset(log.end_offset)
        self._admitting = BatchAdmission(clock)
        self._upkeep = PartitionMaintenance(
            log,
            leader,
            self._writer,
            self._flusher,
            name=f"{topic}-{index}",
            state=self._state,
            one_cleaning=one_cleaning,
            random=random,
        )
        self._copier = FollowerLog(log, leader, self._writer, self._flusher, self._upkeep, clock)

    @property
    def leader_epoch(self) -> int:
        """The epoch that new batches get."""
        return self._leader.epoch

    @property
    def term(self) -> Term | None:
        """What the cluster agreed about this partition, as far as it is known here; None on a broker alone."""
        return self._term

    @property
    def leader(self) -> int:
        """The broker that leads; -1 for nobody, or on a broker alone."""
        return self._term.leader if self._term is not None else -1

    @property
    def leads(self) -> bool:
        """Whether producers and consumers are served here."""
        return self._leader.leads

    @property
    def lags(self) -> dict[int, Lag]:
        """How far every follower is behind, as its leader sees it; nothing where another broker leads."""
        return self._leading.lags(self._log.end_offset) if self._leading is not None and self._leader.leads else {}

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._log.start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next batch gets."""
        return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        """Readers see what is below."""
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records see what is below; the log may begin behind where a transaction was opened."""
        return max(self._stable_offset, min(self._log.start_offset, self._high_watermark))

    @property
    def size_bytes(self) -> int:
        """Bytes in the log."""
        return self._log.size_bytes

    @property
    def failed(self) -> BaseException | None:
        """Why the partition is fenced, if it is."""
        return self._log.failed

    @property
    def away(self) -> bool:
        """Whether what keeps the records is out of reach for now."""
        return self._log.away

    def reserve(self, given_offset: int, record: Callable[[int], Awaitable[int]]) -> None:
        """Have a bound of the offsets recorded (`record`) before records are acknowledged; `given_offset` is so now."""
        self._writer.reservation = Reservation(given_offset, self._flusher.reach, record)

    async def append(
        self,
        batch: bytearray | memoryview,
        *,
        acks: int,
        request_version: int = VERSION_NEWEST,
        timeout_s: float | None = None,
        inspect: Callable[[], object] | None = None,
        verify: Verify | None = None,
    ) -> Appended:
        """Store what a producer sent; acks=-1 returns when it is committed, 0 and 1 when it is written.

        A flush or replicas that take longer than `timeout_s` are a RequestTimedOut for the producer; the records stay.
        """
        self.check_leads()
        if self._leading is not None and acks == ACKS_ALL:
            self._leading.check_enough()
        batch, header = await self._admitting.admit(batch, self.settings, request_version, inspect, verify)
        self.check_leads()  # opening the batch may have taken a while
        leading = self._leading
        placed = await self._writer.write(batch, header, timeout_s=timeout_s or None)
        settings = self.settings
        if leading is not None and acks == ACKS_ALL:
            await self._commit(leading, placed, timeout_s)
        else:
            durable = acks == ACKS_ALL and settings.tidemill_flush == FLUSHED
            if durable or self._log.end_offset - self._flusher.flushed_offset >= settings.flush_messages:
                await self._flusher.reach(placed.next_offset, timeout_s=timeout_s if durable else None)
        return Appended(placed.base_offset, placed.append_time_ms, self._log.start_offset)

    async def append_own(self, batch: bytearray) -> Appended:
        """Store a batch of the broker itself; it is committed when this returns, and calls return in their order."""
        return await self._append_durably(batch, None)

    async def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> Appended:
        """End a transaction in this partition; committed when this returns."""
        batch = end_marker(producer_id, producer_epoch, commit, self._clock(), coordinator_epoch)
        return await self._append_durably(batch, ControlMarker(commit, coordinator_epoch))

    async def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        committed: bool = False,
        at_least_one: bool = True,
        leader_epoch: int = -1,
    ) -> ReadResult:
        """Batches from the one with `offset` on, up to the high watermark or, `committed`, the last stable offset."""
        self.check_leads()
        self._leader.check_epoch(leader_epoch)
        log = self._log
        if not log.start_offset <= offset <= log.end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not within {log.start_offset} and {log.end_offset}")
        high_watermark, stable_offset = self._high_watermark, self.last_stable_offset
        end_offset = self._visible_end(committed=committed)
        records: list[Buffer] = []
        if offset < end_offset and (max_bytes > 0 or at_least_one):
            records = await log.read(offset, end_offset, max_bytes, at_least_one=at_least_one)
        aborted = self._aborted(offset, records) if committed and records else []
        return ReadResult(records, sum(map(len, records)), high_watermark, stable_offset, log.start_offset, aborted)

    def watch(self, wake: Callable[[], None], *, replica: bool = False) -> Callable[[], None]:
        """Call `wake` whenever readers (replicas) may see more and when that ends; the answer stops it."""
        return (self._replicas if replica else self._waiters).add(wake)

    def aborted_ranges(self) -> list[AbortedRange]:
        """The aborted transactions that are still in the log, for those who read its rows without it."""
        return self._leader.aborted.ranges()

    async def offset_at(self, timestamp: int, *, committed: bool = False) -> FoundOffset:
        """The first record whose time is `timestamp` or later, of those that a reader can see."""
        self.check_leads()
        return await first_at(self._log, self._visible_end(committed=committed), timestamp)

    async def offset_of_max_timestamp(self, *, committed: bool = False) -> FoundOffset:
        """The first record with the largest time of all that a reader can see."""
        self.check_leads()
        return await first_with_largest(self._log, self._visible_end(committed=committed))

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch not above `epoch` and its end offset, or (-1, -1)."""
        self.check_leads()
        if epoch == self._leader.epoch:
            return epoch, self._log.end_offset
        if epoch > self._leader.epoch:
            return UNKNOWN_EPOCH
        return self._leader.epochs.end_of(epoch, self._log.end_offset)

    async def end_settled(self) -> int:
        """The high watermark, once it covers all that earlier leaders left: then a replay misses nothing."""
        self.check_leads()
        if self._leading is not None:
            await self._leading.committed(self._leading.start_offset, None)
        return self._high_watermark

    def check_end_known(self) -> None:
        """OffsetNotAvailable while a new leader does not know yet how much of its log is committed (KIP-207)."""
        self.check_leads()
        if self._leading is not None and self._high_watermark < self._leading.start_offset:
            raise OffsetNotAvailable(f"the leader of {self.topic}-{self.index} was just elected")

    async def delete_records(self, before_offset: int) -> int:
        """Let the log begin at `before_offset` (-1: at the high watermark); the new start."""
        self.check_leads()
        target = self._high_watermark if before_offset == HIGH_WATERMARK else before_offset
        if target < 0 or target > self._high_watermark:
            raise OffsetOutOfRange(f"offset {target} is above the high watermark {self._high_watermark}")
        if target > self._log.start_offset:
            await self._upkeep.move_start(target)
        return self._log.start_offset

    async def lead(self, term: Term, agreement: Agreement) -> None:
        """This broker leads from now on, or its followers in sync are others; old news changes nothing."""
        known = self._term
        if self._closed or (known is not None and not term.newer_than(known)):
            return
        if known is not None and known.epoch == term.epoch:
            if self._leader.leads:
                self._term = term
                self._go_on(term, agreement)
            return  # a leader that stepped down comes back with another epoch only
        await self._change_role(term)
        async with self._writer.exclusive():
            self._know_high_watermark(known)
            self._leader.epoch = term.epoch
            self._leader.leads = True
            if len(term.replicas) > 1:
                self._leading = self._make_leading(term, agreement)
            self._on_written()

    async def follow(self, term: Term) -> None:
        """Another broker leads from now on, or nobody; old news changes nothing."""
        known = self._term
        if self._closed or (known is not None and not term.newer_than(known)):
            return
        if known is not None and known.epoch == term.epoch and not self._leader.leads:
            self._term = term
            return
        await self._change_role(term)
        async with self._writer.exclusive():
            self._know_high_watermark(known)
            self._move_high_watermark(min(self._high_watermark, self._log.end_offset))

    def step_down(self, *, replaceable: bool = False) -> None:
        """Acknowledge and show nothing any more, until `lead` is called for a later epoch.

        Who has no other replica goes on, for nobody else can lead; unless it is `replaceable`.
        """
        if self._leading is None and not replaceable:
            return
        self._leader.leads = False
        if self._leading is not None:
            self._leading.stop(self._not_leader())
        self._wake()

    def tick(self) -> None:
        """Look for followers that lag."""
        if self._leading is not None:
            self._leading.tick()

    async def read_as_replica(
        self, node: int, asked: Question, max_bytes: int, *, at_least_one: bool = True
    ) -> ReadResult | Diverged | OutOfRange:
        """What a follower gets: batches up to the end of the log, or where its own log is another one.

        That it asks from an offset says that it has everything before for good.
        """
        leading = self._check_asked(node, asked)
        log = self._log
        wrong = compare(asked, self._leader.epochs, log.start_offset, log.end_offset)
        if wrong is not None:
            return wrong
        leading.fetched(node, asked.offset, log.end_offset)
        records: list[Buffer] = []
        end_offset = log.end_offset
        if asked.offset < end_offset and (max_bytes > 0 or at_least_one):
            records = await log.read(asked.offset, end_offset, max_bytes, at_least_one=at_least_one)
            self._check_asked(node, asked)
        size = sum(map(len, records))
        return ReadResult(records, size, self._high_watermark, self.last_stable_offset, log.start_offset, [])

    async def ask(self) -> Question | None:
        """What this follower asks its leader next, with all that it has flushed; None when there is nobody to ask."""
        if self._follows() is None:
            return None
        if self.settings.tidemill_flush == FLUSHED:
            await self._flusher.reach(self._log.end_offset)
        term = self._follows()
        return None if term is None else question(term, self._leader.epochs, self._log.end_offset)

    async def take(self, asked: Question, answer: Copied | Diverged | OutOfRange, leader_start_offset: int) -> None:
        """Take in what the leader answered; dropped when it comes too late to be true."""
        if self._follows() is not None:
            await self._upkeep.to_the_end(self._take(asked, answer, leader_start_offset))

    async def _take(self, asked: Question, answer: Copied | Diverged | OutOfRange, leader_start_offset: int) -> None:
        if not isinstance(answer, Copied):
            await self._mend(asked, answer, leader_start_offset)
            return
        async with self._writer.exclusive():
            if not self._expects(asked):
                return
            await self._copier.copy(asked, answer.records)
            end_offset = self._log.end_offset
            self._move_high_watermark(max(self._high_watermark, min(answer.high_watermark, end_offset)))
        start_offset = min(leader_start_offset, self._high_watermark)
        if start_offset > self._log.start_offset:
            await self._upkeep.move_start(start_offset)

    async def _mend(self, asked: Question, answer: Diverged | OutOfRange, leader_start_offset: int) -> None:
        async with self._upkeep.paused(), self._writer.exclusive():
            if self._expects(asked):
                await self._copier.mend(answer, leader_start_offset)
                self._move_high_watermark(min(self._high_watermark, self._log.end_offset))

    async def truncate(self, end_offset: int) -> None:
        """Drop everything from the batch with `end_offset` on."""
        self._check_open()
        await self._upkeep.to_the_end(self._truncate(end_offset))

    async def _truncate(self, end_offset: int) -> None:
        async with self._upkeep.paused(), self._writer.exclusive():
            await self._copier.cut(end_offset)
        self._on_written()

    def apply_settings(self, settings: TopicSettings) -> None:
        """Follow the topic's new settings from now on."""
        self.settings = settings
        self._log.settings = settings

    async def tend(self, now_ms: int, expiry_ms: int = EXPIRY_MS, chores: Chores = ALL_CHORES) -> None:
        """Do what time asks for: retention, closing of old segments, flush.ms, producers that went away, checkpoint.

        A producer has gone away when it was silent for `expiry_ms`.
        """
        if not self._closed and self._log.failed is None:
            await self._upkeep.tend(now_ms, self._high_watermark, self._stable_offset, expiry_ms, chores)

    def producers(self) -> list[ProducerSnapshot]:
        """Every producer that the partition remembers."""
        return self._leader.producers.snapshots()

    def has(self, header: BatchHeader) -> bool:
        """Whether the producer's batch is in the log already; raises what an append of it would be refused with."""
        verdict = self._leader.judge(header)
        if isinstance(verdict, Refused):
            raise verdict.error
        return isinstance(verdict, Duplicate)

    def open_transaction(self, producer_id: int, epoch: int) -> int | None:
        """The first offset of the transaction that the producer has open here in this epoch.

        One of an earlier epoch is another one, that waits for its marker (KIP-890).
        """
        return self._leader.producers.open_offset_in(producer_id, epoch)

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Raise what an end marker would be refused with: its producer or its coordinator was replaced."""
        self.check_leads()
        refusal = self._leader.producers.judge_marker(producer_id, producer_epoch, coordinator_epoch)
        if refusal is not None:
            raise refusal

    async def close(self) -> None:
        """Write what is queued, flush, leave a checkpoint so that the next start need not scan."""
        if self._closed:
            return
        await self._stop()
        await self._upkeep.close()
        await self._log.close()

    async def delete(self) -> None:
        """Close without a trace."""
        await self._stop()
        await self._log.delete()

    async def cleaned(self) -> None:
        """Return when no compaction of this partition runs."""
        await self._upkeep.cleaned()

    async def _stop(self) -> None:
        """Take nothing more, finish what was begun."""
        self._closed = True
        if self._leading is not None:
            await self._leading.end(self._not_leader())
        self._wake()
        await self._upkeep.stop()
        await self._writer.settled()
        await self._flusher.settled()

    async def _append_durably(self, batch: bytearray, marker: ControlMarker | None) -> Appended:
        self.check_leads()
        leading = self._leading
        if leading is not None:
            leading.check_enough()
        placed: Placed = await self._writer.write(batch, read_header(batch), marker)
        if leading is not None:
            await self._commit(leading, placed, None)
        else:
            await self._flusher.reach(placed.next_offset)
        return Appended(placed.base_offset, placed.append_time_ms, self._log.start_offset)

    async def _commit(self, leading: LeaderReplication, placed: Placed, timeout_s: float | None) -> None:
        """Wait for the leader's own disk, then for the replicas, which copy meanwhile."""
        clock = asyncio.get_running_loop().time
        deadline = None if timeout_s is None else clock() + timeout_s
        if self.settings.tidemill_flush == FLUSHED:
            await self._flusher.reach(placed.next_offset, timeout_s=timeout_s)
        await leading.committed(placed.next_offset, None if deadline is None else max(deadline - clock(), 0.0))

    async def _change_role(self, term: Term) -> None:
        """Stop leading, if this broker does; what is on its way to the log still gets there, under the old epoch."""
        leading, self._leading = self._leading, None
        self._term = term
        self._leader.leads = False
        if leading is not None:
            await leading.end(self._not_leader())
        self._wake()

    def _make_leading(self, term: Term, agreement: Agreement) -> LeaderReplication:
        now_ms = asyncio.get_running_loop().time() * 1000
        return LeaderReplication(
            InSync(term, self._log.end_offset, self._high_watermark, now_ms),
            agreement,
            min_insync=lambda: self.settings.min_insync_replicas,
            own_offset=self._own_offset,
            on_commit=self._on_commit,
        )

    def _go_on(self, term: Term, agreement: Agreement) -> None:
        """The same epoch with other replicas; the first follower of a leader that was alone may have come."""
        if self._leading is not None:
            self._leading.learn(term)
        elif len(term.replicas) > 1:
            self._leading = self._make_leading(term, agreement)

    def _know_high_watermark(self, known: Term | None) -> None:
        """At its first role a replica knows what was committed from its last checkpoint only."""
        if known is None:
            saved = self._log.saved.state.get("high_watermark", 0) if self._log.saved is not None else 0
            saved = min(max(saved, self._log.start_offset), self._log.end_offset)
            self._move_high_watermark(saved)

    def _own_offset(self) -> int:
        return self._flusher.flushed_offset if self.settings.tidemill_flush == FLUSHED else self._log.end_offset

    def _on_written(self) -> None:
        if not self._leader.leads:
            return
        leading = self._leading
        if leading is None:
            self._move_high_watermark(self._log.end_offset)
            return
        self._replicas.wake()
        if self._log.end_offset > self._own_offset():
            self._flusher.begin()
        else:
            leading.advance()

    def _on_flushed(self) -> None:
        if self._leading is not None:
            self._leading.advance()

    def _on_commit(self) -> None:
        if self._leading is not None and self._leader.leads:
            self._move_high_watermark(self._leading.high_watermark)

    def _move_high_watermark(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        self._stable_offset = self._leader.stable_offset(high_watermark)
        self._waiters.wake()

    def _visible_end(self, *, committed: bool) -> int:
        """Where the records end that a reader can see."""
        return self.last_stable_offset if committed else self._high_watermark

    def _wake(self) -> None:
        self._waiters.wake()
        self._replicas.wake()

    def _state(self) -> dict[str, Any]:
        return {**self._leader.save(), "high_watermark": self._high_watermark}

    def _follows(self) -> Term | None:
        """The term of the leader to copy from."""
        term = self._term
        usable = not self._closed and self._log.failed is None and not self._leader.leads
        return term if usable and term is not None and term.leader >= 0 else None

    def _expects(self, asked: Question) -> bool:
        term = self._follows()
        return term is not None and still_true(asked, term, self._log.end_offset)

    def _check_asked(self, node: int, asked: Question) -> LeaderReplication:
        self.check_leads()
        self._leader.check_epoch(max(asked.epoch, 0))
        leading = self._leading
        if leading is None or node not in leading.term.replicas:
            raise NotLeaderOrFollower(f"broker {node} has no replica of {self.topic}-{self.index}")
        return leading

    def _check_open(self) -> None:
        if self._closed:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is closed")
        if self._log.failed is not None:
            raise KafkaStorageError(f"{self.topic}-{self.index} is fenced: {self._log.failed}")

    def check_leads(self) -> None:
        """NotLeaderOrFollower unless this broker serves the partition."""
        self._check_open()
        if not self._leader.leads:
            raise self._not_leader()

    def _not_leader(self) -> NotLeaderOrFollower:
        return NotLeaderOrFollower(f"{self.topic}-{self.index} is led by another broker")

    def _aborted(self, offset: int, records: list[Buffer]) -> list[AbortedTransaction]:
        if not len(self._leader.aborted):
            return []
        last = offset
        for _, header in iter_headers(records[-1]):
            last = header.next_offset
        return self._leader.aborted.overlapping(offset, last)
