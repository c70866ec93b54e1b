"""The leader side of a partition: it appends batches and serves followers.

The path of a batch: `BatchAdmission` checks it, the writer asks `core.leader` for its offset and appends it to the
`StreamLog`. For acks=all, `Flusher` flushes it together with others and `LeaderReplication` waits for the in-sync
replicas.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from tidemill.model.errors import NotLeaderOrFollower, OffsetNotAvailable, OffsetOutOfRange
from tidemill.records.build import end_marker
from tidemill.records.header import BatchHeader, Buffer, read_header
from tidemill.streams.admission import BatchAdmission, Verify
from tidemill.streams.core.follower import Diverged, OutOfRange, Question, compare
from tidemill.streams.core.insync import InSync, Lag, Term
from tidemill.streams.core.leader import ControlMarker, Duplicate, Refused
from tidemill.streams.leader_replication import Agreement, LeaderReplication
from tidemill.streams.maintenance import PartitionMaintenance
from tidemill.streams.partition.reader import ReadResult
from tidemill.streams.partition.replica import ReplicaState
from tidemill.streams.writer import Placed

ACKS_ALL = -1
HIGH_WATERMARK = -1
VERSION_NEWEST = 99


class Appended(NamedTuple):
    """The place of a batch in the log; `log_append_time_ms` is -1 where records carry the time of their producer."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class PartitionLeader:
    """Leads one partition."""

    def __init__(self, replica: ReplicaState, maintenance: PartitionMaintenance) -> None:
        self._replica = replica
        self._maintenance = maintenance
        self._admission = BatchAdmission(replica.clock)

    @property
    def lags(self) -> dict[int, Lag]:
        """How far each follower is behind; empty where another broker leads."""
        replica = self._replica
        if replica.replication is None or not replica.leader.leads:
            return {}
        return replica.replication.lags(replica.log.end_offset)

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
        """Store a producer's batch; acks=-1 returns when it is committed, 0 and 1 when it is written.

        When a flush or replicas take longer than `timeout_s`, the producer gets RequestTimedOut and the records stay.
        """
        replica = self._replica
        replica.check_leads()
        if replica.replication is not None and acks == ACKS_ALL:
            replica.replication.check_enough()
        settings = replica.log.settings
        batch, header = await self._admission.admit(batch, settings, request_version, inspect, verify)
        replica.check_leads()  # opening the batch may have taken a while
        replication = replica.replication
        placed = await replica.writer.write(batch, header, timeout_s=timeout_s or None)
        if replication is not None and acks == ACKS_ALL:
            await self._commit(replication, placed, timeout_s)
        else:
            durable = acks == ACKS_ALL and replica.waits_for_flush
            flush_messages = replica.log.settings.flush_messages
            if durable or replica.log.end_offset - replica.flusher.flushed_offset >= flush_messages:
                await replica.flusher.reach(placed.next_offset, timeout_s=timeout_s if durable else None)
        return Appended(placed.base_offset, placed.append_time_ms, replica.log.start_offset)

    async def append_own(self, batch: bytearray, *, committed: bool = True) -> Appended:
        """Store a batch of the broker itself; it is committed when this returns, and calls return in their order.

        Without `committed` it is only written here, as with acks=1.
        """
        return await self._append_durably(batch, None, committed=committed)

    async def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0
    ) -> Appended:
        """End a transaction in this partition; committed when this returns."""
        batch = end_marker(producer_id, producer_epoch, commit, self._replica.clock(), coordinator_epoch)
        return await self._append_durably(batch, ControlMarker(commit, coordinator_epoch))

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Raise the error of an end marker whose producer or coordinator was replaced."""
        self._replica.check_leads()
        refusal = self._replica.leader.producers.judge_marker(producer_id, producer_epoch, coordinator_epoch)
        if refusal is not None:
            raise refusal

    def has(self, header: BatchHeader) -> bool:
        """Whether the producer's batch is in the log already; raises the error that an append of it would get."""
        verdict = self._replica.leader.judge(header)
        if isinstance(verdict, Refused):
            raise verdict.error
        return isinstance(verdict, Duplicate)

    def open_transaction(self, producer_id: int, epoch: int) -> int | None:
        """The first offset of the transaction that the producer has open here in this epoch.

        A transaction of an earlier epoch is another one, which waits for its marker (KIP-890).
        """
        return self._replica.leader.producers.open_offset_in(producer_id, epoch)

    async def delete_records(self, before_offset: int) -> int:
        """Move the start of the log to `before_offset` (-1: to the high watermark); returns the new start."""
        replica = self._replica
        replica.check_leads()
        target = replica.high_watermark if before_offset == HIGH_WATERMARK else before_offset
        if target < 0 or target > replica.high_watermark:
            raise OffsetOutOfRange(f"offset {target} is above the high watermark {replica.high_watermark}")
        if target > replica.log.start_offset:
            await self._maintenance.move_start(target)
        return replica.log.start_offset

    async def end_settled(self) -> int:
        """The high watermark, once it covers everything that earlier leaders wrote: then a replay misses nothing."""
        replica = self._replica
        replica.check_leads()
        if replica.replication is not None:
            await replica.replication.committed(replica.replication.start_offset, None)
        return replica.high_watermark

    async def all_settled(self, timeout_s: float) -> None:
        """Return when everything that is in the log now is committed."""
        replica = self._replica
        replica.check_leads()
        if replica.replication is not None:
            await replica.replication.committed(replica.log.end_offset, timeout_s)

    def check_end_known(self) -> None:
        """OffsetNotAvailable while a new leader does not know yet how much of its log is committed (KIP-207)."""
        replica = self._replica
        replica.check_leads()
        if replica.replication is not None and replica.high_watermark < replica.replication.start_offset:
            raise OffsetNotAvailable(f"the leader of {replica.topic}-{replica.index} was just elected")

    async def lead(self, term: Term, agreement: Agreement) -> None:
        """Lead in this term, or learn a new set of in-sync replicas; an older term changes nothing."""
        replica = self._replica
        known = replica.term
        if replica.is_closed or (known is not None and not term.newer_than(known)):
            return
        if known is not None and known.epoch == term.epoch:
            if replica.leader.leads:
                replica.term = term
                self._keep_leading(term, agreement)
            return  # a leader that stepped down leads again in a later epoch only
        await replica.change_role(term)
        async with replica.writer.exclusive():
            replica.load_high_watermark(known)
            replica.leader.epoch = term.epoch
            replica.leader.leads = True
            if len(term.replicas) > 1:
                replica.replication = self._make_replication(term, agreement)
            replica.on_written()

    def step_down(self, *, replaceable: bool = False) -> None:
        """Acknowledge and show nothing, until `lead` is called for a later epoch.

        A sole replica keeps leading, because no other broker can; unless it is `replaceable`.
        """
        replica = self._replica
        if replica.replication is None and not replaceable:
            return
        replica.leader.leads = False
        if replica.replication is not None:
            replica.replication.stop(replica.not_leader())
        replica.wake()

    def tick(self) -> None:
        """Look for followers that lag."""
        if self._replica.replication is not None:
            self._replica.replication.tick()

    async def read_as_replica(
        self, node: int, asked: Question, max_bytes: int, *, at_least_one: bool = True
    ) -> ReadResult | Diverged | OutOfRange:
        """Batches for a follower up to the end of the log, or where its log differs from this one.

        A fetch at offset N acknowledges everything below N.
        """
        replica = self._replica
        replication = self._check_asked(node, asked)
        log = replica.log
        wrong = compare(asked, replica.leader.epochs, log.start_offset, log.end_offset)
        if wrong is not None:
            return wrong
        replication.fetched(node, asked.offset, log.end_offset)
        records: list[Buffer] = []
        end_offset = log.end_offset
        if asked.offset < end_offset and (max_bytes > 0 or at_least_one):
            records = await log.read(asked.offset, end_offset, max_bytes, at_least_one=at_least_one)
            self._check_asked(node, asked)
        size = sum(map(len, records))
        return ReadResult(records, size, replica.high_watermark, replica.last_stable_offset, log.start_offset, [])

    def _check_asked(self, node: int, asked: Question) -> LeaderReplication:
        replica = self._replica
        replica.check_leads()
        replica.leader.check_epoch(max(asked.epoch, 0))
        replication = replica.replication
        if replication is None or node not in replication.term.replicas:
            raise NotLeaderOrFollower(f"broker {node} has no replica of {replica.topic}-{replica.index}")
        return replication

    async def _append_durably(
        self, batch: bytearray, marker: ControlMarker | None, *, committed: bool = True
    ) -> Appended:
        replica = self._replica
        replica.check_leads()
        replication = replica.replication
        if replication is not None and committed:
            replication.check_enough()
        placed: Placed = await replica.writer.write(batch, read_header(batch), marker)
        if not committed:
            return Appended(placed.base_offset, placed.append_time_ms, replica.log.start_offset)
        if replication is not None:
            await self._commit(replication, placed, None)
        else:
            await replica.flusher.reach(placed.next_offset)
        return Appended(placed.base_offset, placed.append_time_ms, replica.log.start_offset)

    async def _commit(self, replication: LeaderReplication, placed: Placed, timeout_s: float | None) -> None:
        """Wait for the disk of the leader, then for the replicas, which copy meanwhile."""
        clock = asyncio.get_running_loop().time
        deadline = None if timeout_s is None else clock() + timeout_s
        if self._replica.waits_for_flush:
            await self._replica.flusher.reach(placed.next_offset, timeout_s=timeout_s)
        await replication.committed(placed.next_offset, None if deadline is None else max(deadline - clock(), 0.0))

    def _keep_leading(self, term: Term, agreement: Agreement) -> None:
        """The same epoch with other replicas; a sole leader may have got its first follower."""
        replica = self._replica
        if replica.replication is not None:
            replica.replication.learn(term)
        elif len(term.replicas) > 1:
            replica.replication = self._make_replication(term, agreement)

    def _make_replication(self, term: Term, agreement: Agreement) -> LeaderReplication:
        replica = self._replica
        now_ms = asyncio.get_running_loop().time() * 1000
        return LeaderReplication(
            InSync(term, replica.log.end_offset, replica.high_watermark, now_ms),
            agreement,
            min_insync=lambda: replica.log.settings.min_insync_replicas,
            own_offset=replica.own_offset,
            on_commit=replica.on_commit,
        )
