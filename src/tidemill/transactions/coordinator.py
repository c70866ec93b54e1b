"""The transaction coordinator: asks the rules, keeps their answers in the journal, and sees that markers get written.

The walk of a change: wait for the turn of the transactional id -> `core/rules.py` decides -> the record is made durable
-> the table replays it -> the answer. A caller that goes away in the middle changes nothing of this: the change runs
in a task of its own.

The walk of an end: PrepareCommit or PrepareAbort is journaled, and from then on the outcome is fixed. One marker goes
to each partition (for group offsets, to their coordinator), then Complete* is journaled. EndTxn waits for this up to
`MARKERS_WAIT_S`, so that a reader sees what a commit returned for; should a partition be unable to take its marker now,
the answer goes out (the outcome is fixed), `tick` tries again, and until then the id answers ConcurrentTransactions.
After a crash, `start` finds the same Prepare* states in the journal and walks the same way.

What must never happen: a marker before its Prepare* record is durable, or of a transaction that is over (what was read
of a journal so far may say so of one that ended long ago); Complete* while a marker is missing; an answer to EndTxn
before the outcome is durable.
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
"""How often resting transactional ids are looked through, as in Kafka."""

_T = TypeVar("_T")

log = structlog.get_logger("tidemill.transactions")


class _JoiningWrites:
    """Writes of one transactional id that wait for their partitions to join its transaction."""

    __slots__ = ("length", "turn")

    def __init__(self) -> None:
        self.length = 0
        self.turn = asyncio.Lock()


class TransactionCoordinator:
    """All transactional ids of this broker."""

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
        """The partitions of the journal that this broker leads, with their epochs; None before the start."""
        self._loaded: dict[int, int] = {}
        """The partitions that were read, and in which epochs."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._lines: dict[str, _JoiningWrites] = {}
        self._spare: int | None = None
        self._finishing: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._markers = asyncio.Semaphore(MARKERS_IN_FLIGHT_MAX)
        self._swept_ms = self._steady()

    @property
    def loaded(self) -> Collection[int]:
        """The partitions of the journal that were read."""
        return self._loaded.keys()

    async def let_go(self, partitions: Iterable[int]) -> None:
        """Forget the ids of partitions that another broker leads."""
        gone = set(partitions)
        self._loaded = {partition: epoch for partition, epoch in self._loaded.items() if partition not in gone}
        self._table.drop(lambda name: self._journal.partition_of(name) in gone)

    async def load(self, partition: int, epoch: int) -> None:
        """Read the ids of a partition that this broker leads since `epoch`; finish what a crash interrupted."""
        try:
            async for records in self._journal.replay(partition):
                # How old an open transaction is, only the wall clock can say; in doubt it gets its whole time again.
                now_ms = self._clock() if self._may_expire() else None
                for record in records:
                    self._table.replay(record.key, record.value, self._steady(), now_ms)
        except BaseException:
            self._table.drop(lambda name: self._journal.partition_of(name) == partition)
            raise
        self._loaded[partition] = epoch
        for transactional_id in self._seated(self._table.unfinished()):
            self._finish_soon(transactional_id)

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that keeps the id."""
        return self._journal.partition_of(transactional_id)

    def _check_seat(self, transactional_id: str) -> None:
        """Refuse an id that another broker coordinates, or that is not read yet."""
        partition = self._journal.partition_of(transactional_id)
        if partition in self._loaded:
            if not self._journal.leads(partition, self._loaded[partition]):
                raise NotCoordinator
            return
        raise CoordinatorLoadInProgress if self.led is None or partition in self.led else NotCoordinator

    def _seated(self, names: Iterable[str]) -> list[str]:
        """Those of the ids that are coordinated here, and read to the end."""
        led = {partition for partition, epoch in self._loaded.items() if self._journal.leads(partition, epoch)}
        return [name for name in names if self._journal.partition_of(name) in led]

    async def close(self) -> None:
        """Stop writing markers; the journal knows which are missing."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def tick(self) -> None:
        """Abort what is open for too long, write markers that could not be written, forget ids that rest."""
        for transactional_id in self._seated(self._table.unfinished()):
            self._finish_soon(transactional_id)
        for transactional_id in self._seated(self._table.late(self._steady())):
            await self._try(transactional_id, self._time_out(transactional_id))
        if self._steady() - self._swept_ms >= SWEEP_INTERVAL_MS and self._may_expire():
            self._swept_ms = self._steady()
            for transactional_id in self._table.forgettable(self._clock(), self._limits.id_expiry_ms):
                await self._try(transactional_id, self._forget(transactional_id))

    async def init_producer(self, request: InitProducer | None) -> ProducerIdAndEpoch:
        """Give a producer its identity; without a transactional id (None) it is simply a new one."""
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
        self, transactional_id: str, asker: ProducerIdAndEpoch, partitions: AbstractSet[TopicPartition]
    ) -> None:
        """Let the transaction write to these partitions."""

        def decide(known: Transaction | None) -> Decision:
            return rules.add_partitions(known, asker, partitions, self._clock())

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
        """Refuse a transactional write unless the partition is in the open transaction; `implicit` adds it first.

        The last step before returning is a look at the state, without waiting: what the caller does next, also without
        waiting, happens before any marker of this transaction.
        """
        if not transactional_id:
            raise InvalidTxnState("a transactional batch without a transactional id")
        asker = ProducerIdAndEpoch(producer_id, producer_epoch)
        try:
            if implicit and (transactional_id in self._lines or not self._covers(transactional_id, asker, partition)):
                await self._join(transactional_id, asker, partition)
        except ProducerFenced as error:
            raise InvalidProducerEpoch(str(error)) from error
        self.check(transactional_id, asker, partition)

    def check(self, transactional_id: str, asker: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """`verify` without waiting, for a partition that has joined."""
        self._check_seat(transactional_id)
        try:
            rules.check_partition(self._table.get(transactional_id), asker, partition)
        except ProducerFenced as error:  # producers know this error only as InvalidProducerEpoch where they write data
            raise InvalidProducerEpoch(str(error)) from error

    async def end_transaction(
        self, transactional_id: str, asker: ProducerIdAndEpoch, *, commit: bool, bump: bool
    ) -> ProducerIdAndEpoch:
        """Commit or abort; returns the identity for the next transaction (a new epoch with `bump`)."""

        def decide(known: Transaction | None, spare: int) -> Decision:
            return rules.end_transaction(
                known, asker, commit=commit, bump=bump, spare_producer_id=spare, now_ms=self._clock()
            )

        outcome = await self._run(self._change_identity(transactional_id, decide))
        finishing = self._finishing.get(transactional_id)
        if finishing is not None:
            await asyncio.wait({finishing}, timeout=MARKERS_WAIT_S)
        return outcome.identity

    def describe(self, transactional_id: str) -> Transaction:
        """What is known of one id."""
        self._check_seat(transactional_id)
        known = self._table.get(transactional_id)
        if known is None:
            raise TransactionalIdNotFound(f"there is no transactional id {transactional_id!r}")
        return known

    def select(
        self,
        *,
        states: AbstractSet[str] = frozenset(),
        producer_ids: AbstractSet[int] = frozenset(),
        older_ms: int = -1,
    ) -> list[Transaction]:
        """The ids that pass the filters of ListTransactions."""
        return self._table.select(states=states, producer_ids=producer_ids, older_ms=older_ms, now_ms=self._clock())

    def _covers(self, transactional_id: str, asker: ProducerIdAndEpoch, partition: TopicPartition) -> bool:
        known = self._table.get(transactional_id)
        return known is not None and known.identity == asker and partition in known.partitions

    async def _join(self, transactional_id: str, asker: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """Add a partition on its first write. Writes that come meanwhile queue: none may overtake another."""
        line = self._lines.setdefault(transactional_id, _JoiningWrites())
        line.length += 1
        try:
            async with line.turn:
                if not self._covers(transactional_id, asker, partition):
                    await self.add_partitions(transactional_id, asker, {partition})
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
            log.info("transaction timed out", transactional_id=transactional_id)

    async def _change_identity(
        self, transactional_id: str, decide: Callable[[Transaction | None, int], Decision]
    ) -> Decision:
        """A change that may give away a producer id: one is always at hand, since the rules cannot wait for it."""
        async with self._turn(transactional_id):
            self._check_seat(transactional_id)
            while (spare := self._spare) is None:
                self._spare = await self._new_producer_id()
            outcome = decide(self._table.get(transactional_id), spare)
            if outcome.uses(spare):
                self._spare = None
            await self._write(outcome.change)
        return outcome

    async def _change(self, transactional_id: str, decide: Callable[[Transaction | None], Decision]) -> Decision:
        async with self._turn(transactional_id):
            self._check_seat(transactional_id)
            outcome = decide(self._table.get(transactional_id))
            await self._write(outcome.change)
        return outcome

    async def _write(self, change: Transaction | None) -> None:
        """Journal, then memory; a fixed outcome sets its markers on their way. Called in the id's turn."""
        if change is None:
            return
        key, value = write_key(change.transactional_id), write_value(change)
        await self._append(change.transactional_id, key, value)
        if change.state.preparing:
            self._finish_soon(change.transactional_id)

    async def _append(self, transactional_id: str, key: bytes, value: bytes | None) -> None:
        """A record that is durable is replayed; a journal that is led elsewhere is a coordinator that is elsewhere.

        One whose disk takes nothing soon will be: clients know no other word for it, and look for the next one.
        """
        try:
            await self._journal.append(self._journal.partition_of(transactional_id), [(key, value)])
        except (NotLeaderOrFollower, FencedLeaderEpoch, KafkaStorageError) as error:
            raise NotCoordinator(str(error)) from error
        except (NotEnoughReplicas, NotEnoughReplicasAfterAppend, RequestTimedOut) as error:
            raise CoordinatorNotAvailable(str(error)) from error
        self._check_seat(transactional_id)
        self._table.replay(key, value, self._steady())

    async def _forget(self, transactional_id: str) -> None:
        async with self._turn(transactional_id):
            self._check_seat(transactional_id)
            known = self._table.get(transactional_id)
            # The clock may have been set while this waited: gate and time are read together, as late as possible.
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
        """Write every marker of a prepared transaction, then complete it; what fails is left to the next tick."""
        known = self._table.get(transactional_id)
        if known is None or not known.state.preparing:
            return
        try:
            self._check_seat(transactional_id)
            done = await asyncio.gather(*(self._mark(known, partition) for partition in sorted(known.partitions)))
            if all(done):
                await self._change(transactional_id, self._complete)
        except TidemillError as error:
            log.warning("transaction not completed yet", transactional_id=transactional_id, error=str(error))

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
            return True  # deleted, or a later epoch was there already: nothing is left to end
        except TidemillError as error:
            log.warning("marker not written yet", partition=str(partition), error=str(error))
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
        """Run work of the tick; what fails for one id is tried again at the next tick and does not hold up others."""
        try:
            await self._run(work)
        except TidemillError as error:
            log.warning("transactional id not tended", transactional_id=transactional_id, error=str(error))

    async def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run to the end, whatever becomes of the caller."""
        return await asyncio.shield(self._spawn(work))

    def _spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
