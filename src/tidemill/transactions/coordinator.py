"""The transaction coordinator: it applies the rules, journals their decisions, and has the markers written.

The path of a change: wait for the turn of the transactional id -> `core/rules.py` decides -> the record is made durable
-> the table replays it -> the answer. A caller that disconnects in the middle does not stop it, because the change runs
in a task of its own.

The path of an end: PrepareCommit or PrepareAbort is journaled; from then on the outcome is fixed. One marker goes to
each partition (for group offsets, to their coordinator), then Complete* is journaled. EndTxn waits for this up to
`MARKERS_WAIT_S`, so that a reader sees the records once the commit has returned. If a partition cannot take its marker
now, the answer is sent anyway, because the outcome is fixed. `tick` tries again; until it succeeds, the id answers
ConcurrentTransactions. After a crash, `load` finds the same Prepare* states in the journal and follows the same path.

Invariants:
- No marker is written before its Prepare* record is durable.
- No marker is written for a transaction that has ended. A partly read journal may still show an ended one as open.
- Complete* is not journaled while a marker is missing.
- EndTxn is not answered before the outcome is durable.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import structlog

from tidemill.model.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    ProducerFenced,
    RequestTimedOut,
    TidemillError,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from tidemill.model.topics import TopicPartition
from tidemill.records.journal import Journal
from tidemill.supervision.supervisor import Supervisor
from tidemill.transactions.core import rules
from tidemill.transactions.core.records import write_key, write_value
from tidemill.transactions.core.rules import Decision, InitProducer
from tidemill.transactions.core.state import ProducerIdAndEpoch, Transaction
from tidemill.transactions.core.table import TransactionTable
from tidemill.transactions.interface import TransactionLimits, TransactionMarker, WriteMarker

MARKERS_WAIT_S = 10.0
MARKERS_IN_FLIGHT_MAX = 256
SWEEP_INTERVAL_MS = 3_600_000
"""How often idle transactional ids are checked for expiry, as in Kafka."""

_T = TypeVar("_T")

log = structlog.get_logger("tidemill.transactions")


class _JoiningWrites:
    """Writes of one transactional id that wait until their partitions have joined its transaction."""

    __slots__ = ("length", "turn")

    def __init__(self) -> None:
        self.length = 0
        self.turn = asyncio.Lock()


class TransactionCoordinator:
    """All transactional ids that this broker coordinates."""

    def __init__(
        self,
        journal: Journal,
        *,
        write_marker: WriteMarker,
        new_producer_id: Callable[[], Awaitable[int]],
        clock: Callable[[], int],
        steady: Callable[[], int] | None = None,
        limits: TransactionLimits | None = None,
        may_expire: Callable[[], bool] = lambda: True,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor()
        self._journal = journal
        self._write_marker = write_marker
        self._new_producer_id = new_producer_id
        self._clock = clock
        self._steady = steady or clock
        self._limits = limits or TransactionLimits()
        self._may_expire = may_expire
        self._table = TransactionTable()
        self.led: Mapping[int, int] | None = None
        """The journal partitions that this broker leads, with their epochs; None before the start."""
        self._loaded: dict[int, int] = {}
        """The partitions that were read, with their leader epochs."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._lines: dict[str, _JoiningWrites] = {}
        self._spare: int | None = None
        self._finishing: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._markers = asyncio.Semaphore(MARKERS_IN_FLIGHT_MAX)
        self._swept_ms = self._steady()

    def start(self) -> None:
        """Do nothing: the broker calls `tick`."""

    @property
    def loaded(self) -> Collection[int]:
        """The journal partitions that were read."""
        return self._loaded.keys()

    async def let_go(self, partitions: Iterable[int]) -> None:
        """Forget the ids of partitions that another broker leads now."""
        released = set(partitions)
        self._loaded = {partition: epoch for partition, epoch in self._loaded.items() if partition not in released}
        self._table.drop(lambda name: self._journal.partition_of(name) in released)

    async def load(self, partition: int, epoch: int) -> None:
        """Read the ids of a partition that this broker leads since `epoch`; finish interrupted transactions."""
        try:
            async for records in self._journal.replay(partition):
                # Only the wall clock gives the age of an open transaction. While it is in doubt, the whole timeout
                # starts again.
                now_ms = self._clock() if self._may_expire() else None
                for record in records:
                    self._table.replay(record.key, record.value, self._steady(), now_ms)
        except BaseException:
            self._table.drop(lambda name: self._journal.partition_of(name) == partition)
            raise
        self._loaded[partition] = epoch
        for transactional_id in self._coordinated(self._table.unfinished()):
            self._finish_soon(transactional_id)

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that stores the id."""
        return self._journal.partition_of(transactional_id)

    def _check_coordinated(self, transactional_id: str) -> None:
        """Reject an id that another broker coordinates, or that is not loaded yet."""
        partition = self._journal.partition_of(transactional_id)
        if partition in self._loaded:
            if not self._journal.leads(partition, self._loaded[partition]):
                raise NotCoordinator
            return
        raise CoordinatorLoadInProgress if self.led is None or partition in self.led else NotCoordinator

    def _coordinated(self, names: Iterable[str]) -> list[str]:
        """Return the ids that this broker coordinates and has fully loaded."""
        led = {partition for partition, epoch in self._loaded.items() if self._journal.leads(partition, epoch)}
        return [name for name in names if self._journal.partition_of(name) in led]

    async def close(self) -> None:
        """Stop writing markers. The journal records which are missing."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def tick(self) -> None:
        """Abort transactions that timed out, write missing markers, delete expired ids."""
        for transactional_id in self._coordinated(self._table.unfinished()):
            self._finish_soon(transactional_id)
        for transactional_id in self._coordinated(self._table.late(self._steady())):
            await self._try(transactional_id, self._time_out(transactional_id))
        if self._steady() - self._swept_ms >= SWEEP_INTERVAL_MS and self._may_expire():
            self._swept_ms = self._steady()
            for transactional_id in self._table.forgettable(self._clock(), self._limits.id_expiry_ms):
                await self._try(transactional_id, self._forget(transactional_id))

    async def init_producer(self, request: InitProducer | None) -> ProducerIdAndEpoch:
        """Give a producer its identity. Without a transactional id (None) it gets a new producer id."""
        if request is None:
            return ProducerIdAndEpoch(await self._new_producer_id(), 0)
        request.check(self._limits.timeout_ms_max)

        def decide(known: Transaction | None, spare: int) -> Decision:
            return rules.init_producer(known, request, spare_producer_id=spare, now_ms=self._clock())

        outcome = await self._run(self._change_identity(request.transactional_id, decide))
        if outcome.error is not None:
            raise outcome.error
        return outcome.identity

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: AbstractSet[TopicPartition]
    ) -> None:
        """Add these partitions to the transaction."""

        def decide(known: Transaction | None) -> Decision:
            return rules.add_partitions(known, producer, partitions, self._clock())

        await self._run(self._change(transactional_id, decide))

    async def verify(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        implicit: bool = False,
    ) -> None:
        """Reject a transactional write unless the partition is in the open transaction; `implicit` adds it first.

        The last step checks the state without waiting. If the caller then writes, also without waiting, its write comes
        before any marker of this transaction.
        """
        if not transactional_id:
            raise InvalidTxnState("a transactional batch needs a transactional id")
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        try:
            if implicit and (
                transactional_id in self._lines or not self._covers(transactional_id, producer, partition)
            ):
                await self._join(transactional_id, producer, partition)
        except ProducerFenced as error:
            raise InvalidProducerEpoch(str(error)) from error
        self.check(transactional_id, producer, partition)

    def check(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """Check like `verify` but without waiting, for a partition that has joined."""
        self._check_coordinated(transactional_id)
        try:
            rules.check_partition(self._table.get(transactional_id), producer, partition)
        except ProducerFenced as error:  # producers expect InvalidProducerEpoch when they write data
            raise InvalidProducerEpoch(str(error)) from error

    async def end_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, bump: bool
    ) -> ProducerIdAndEpoch:
        """Commit or abort. Returns the identity for the next transaction (a new epoch with `bump`)."""

        def decide(known: Transaction | None, spare: int) -> Decision:
            return rules.end_transaction(
                known, producer, commit=commit, bump=bump, spare_producer_id=spare, now_ms=self._clock()
            )

        outcome = await self._run(self._change_identity(transactional_id, decide))
        finishing = self._finishing.get(transactional_id)
        if finishing is not None:
            await asyncio.wait({finishing}, timeout=MARKERS_WAIT_S)
        return outcome.identity

    def describe(self, transactional_id: str) -> Transaction:
        """Return the state of one id."""
        self._check_coordinated(transactional_id)
        known = self._table.get(transactional_id)
        if known is None:
            raise TransactionalIdNotFound(f"transactional id {transactional_id!r} does not exist")
        return known

    def select(
        self,
        *,
        states: AbstractSet[str] = frozenset(),
        producer_ids: AbstractSet[int] = frozenset(),
        older_ms: int = -1,
    ) -> list[Transaction]:
        """Return the ids that pass the filters of ListTransactions."""
        return self._table.select(states=states, producer_ids=producer_ids, older_ms=older_ms, now_ms=self._clock())

    def _covers(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        known = self._table.get(transactional_id)
        return known is not None and known.identity == producer and partition in known.partitions

    async def _join(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """Add a partition on its first write. Concurrent writes queue, so that none overtakes another."""
        line = self._lines.setdefault(transactional_id, _JoiningWrites())
        line.length += 1
        try:
            async with line.turn:
                if not self._covers(transactional_id, producer, partition):
                    await self.add_partitions(transactional_id, producer, {partition})
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[transactional_id]

    async def _time_out(self, transactional_id: str) -> None:
        def decide(known: Transaction | None) -> Decision:
            late = known is not None and self._table.is_late(transactional_id, self._steady())
            return rules.time_out(known, self._clock()) if known is not None and late else Decision(None)

        outcome = await self._change(transactional_id, decide)
        if outcome.change is not None:
            log.info("transaction_timed_out", transactional_id=transactional_id)

    async def _change_identity(
        self, transactional_id: str, decide: Callable[[Transaction | None, int], Decision]
    ) -> Decision:
        """Make a change that may use a new producer id. One is fetched in advance, because the rules cannot wait."""
        async with self._turn(transactional_id):
            self._check_coordinated(transactional_id)
            while (spare := self._spare) is None:
                self._spare = await self._new_producer_id()
            outcome = decide(self._table.get(transactional_id), spare)
            if outcome.uses(spare):
                self._spare = None
            await self._write(outcome.change)
        return outcome

    async def _change(self, transactional_id: str, decide: Callable[[Transaction | None], Decision]) -> Decision:
        async with self._turn(transactional_id):
            self._check_coordinated(transactional_id)
            outcome = decide(self._table.get(transactional_id))
            await self._write(outcome.change)
        return outcome

    async def _write(self, change: Transaction | None) -> None:
        """Journal a change, then apply it; a fixed outcome starts its markers. Called within the id's turn."""
        if change is None:
            return
        key, value = write_key(change.transactional_id), write_value(change)
        await self._append(change.transactional_id, key, value)
        if change.state.preparing:
            self._finish_soon(change.transactional_id)

    async def _append(self, transactional_id: str, key: bytes, value: bytes | None) -> None:
        """Make a record durable, then replay it. The leader of the journal partition is the coordinator.

        A broker whose disk fails also answers NotCoordinator, because it is about to lose the partition. Clients then
        look for the next coordinator.
        """
        try:
            await self._journal.append(self._journal.partition_of(transactional_id), [(key, value)])
        except (NotLeaderOrFollower, FencedLeaderEpoch, KafkaStorageError) as error:
            raise NotCoordinator(str(error)) from error
        except (NotEnoughReplicas, NotEnoughReplicasAfterAppend, RequestTimedOut) as error:
            raise CoordinatorNotAvailable(str(error)) from error
        self._check_coordinated(transactional_id)
        self._table.replay(key, value, self._steady())

    async def _forget(self, transactional_id: str) -> None:
        async with self._turn(transactional_id):
            self._check_coordinated(transactional_id)
            known = self._table.get(transactional_id)
            # The clock may have been set while this waited: read the gate and the time together, as late as possible.
            if known is None or not self._may_expire():
                return
            if not rules.forgettable(known, self._clock(), self._limits.id_expiry_ms):
                return
            key = write_key(transactional_id)
            await self._append(transactional_id, key, None)

    def _finish_soon(self, transactional_id: str) -> None:
        if transactional_id not in self._finishing:
            task = self._finishing[transactional_id] = self._supervisor.spawn(
                "transaction end", self._finish(transactional_id), about=transactional_id
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: self._finishing.pop(transactional_id))

    async def _finish(self, transactional_id: str) -> None:
        """Write every marker of a prepared transaction, then complete it. The next tick retries after a failure."""
        known = self._table.get(transactional_id)
        if known is None or not known.state.preparing:
            return
        try:
            self._check_coordinated(transactional_id)
            done = await asyncio.gather(*(self._mark(known, partition) for partition in sorted(known.partitions)))
            if all(done):
                await self._change(transactional_id, self._complete)
        except TidemillError as error:
            log.warning("transaction_completion_delayed", transactional_id=transactional_id, error=str(error))

    def _complete(self, known: Transaction | None) -> Decision:
        if known is None or not known.state.preparing:
            return Decision(None)
        return Decision(rules.complete(known, self._clock()))

    async def _mark(self, known: Transaction, partition: TopicPartition) -> bool:
        producer_id, epoch = known.identity
        try:
            async with self._markers:
                await self._write_marker(
                    TransactionMarker(partition, producer_id, epoch, known.commits, self._epoch_of(known))
                )
        except (UnknownTopicOrPartition, InvalidProducerEpoch):
            return True  # the topic was deleted, or a later epoch wrote here already: there is nothing left to end
        except TidemillError as error:
            log.warning("transaction_marker_delayed", partition=str(partition), error=str(error))
            return False
        return True

    def _epoch_of(self, known: Transaction) -> int:
        return (self.led or {}).get(self._journal.partition_of(known.transactional_id), 0)

    def _turn(self, transactional_id: str) -> asyncio.Lock:
        turn = self._turns.get(transactional_id)
        if turn is None:
            turn = self._turns[transactional_id] = asyncio.Lock()
        return turn

    async def _try(self, transactional_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a part of the tick. A failure of one id is retried at the next tick and does not delay other ids."""
        try:
            await self._run(work)
        except TidemillError as error:
            log.warning("transactional_id_check_failed", transactional_id=transactional_id, error=str(error))

    async def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run to the end, even if the caller is cancelled."""
        return await asyncio.shield(self._spawn(work))

    def _spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
