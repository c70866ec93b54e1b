"""The driver's part of an exactly-once sink: a two-phase commit over the transactions of the tasks.

Every task writes in a transaction of its own and leaves it open. The driver first writes one durable entry that names
all of them (the decision). Only then it commits them, over a few connections and in no order. The entry belongs to the
sink's ledger (see `core.ledger`). The driver writes it in a transaction under the sink's own id, the decider. The
commit of that transaction decides the whole micro-batch.

- Before that commit, a restarted query aborts everything. Nothing of the micro-batch was visible.
- After it, a restarted query commits the rest, and the tasks of the repeated micro-batch write nothing. It does not
  matter how many tasks the repeated micro-batch has or which rows they have.

`begin` is called before the tasks of every micro-batch. It takes the decider's id, which fences every earlier driver.
None of them can decide any more, so the ledger is final. Then `begin` finishes the decided transactions and aborts the
others. Only after that may the tasks take their ids, because taking an id aborts its open transaction.

Attempts that do not count (their machine failed, or they were speculative and came second) may leave transactions open.
Readers of committed records would wait for those. The driver does not know of them. So it asks the brokers for open
transactions under the sink's name, after everything that counts is committed, and aborts them.

Two invariants: no task takes its id while the ledger has an unfinished decision, and no branch is aborted before the
decider's id is taken.

Kafka aborts a transaction that is open for longer than its timeout, even a decided one. `_finish` finds out which were
aborted. If all or none were committed in time, nothing special follows. Otherwise the entry keeps the tasks whose rows
are visible, and only the others write again (`core.ledger.decided` says what that requires of the query).
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidemill.client.kafka import GroupOffset, KafkaClient, ProducerIdentity
from tidemill.model.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TidemillError,
)
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.errors import PipelineError, SinkFenced
from tidemill.pipelines.source.client_pool import ClientPool
from tidemill.pipelines.topic.core.ledger import Branch, LedgerEntry, decided, pieces_of, read_entry, write_entry

DECIDER_TIMEOUT_MS = 60_000
GIVEN_UP = (ProducerFenced, InvalidProducerEpoch, InvalidTxnState, InvalidProducerIdMapping)
"""Errors of a transaction that no longer belongs to the producer: it timed out, or another producer took its id."""


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """Input of the tasks of a micro-batch: the sink's name, the decider, and the last decision."""

    sink: str
    decider: ProducerIdentity
    last: LedgerEntry | None

    def skips(self, query: str, batch: int, task: int) -> bool:
        """Whether the rows of a task are in the topic already."""
        if self.last is None:
            return False
        return self.last.covers(query, batch) or task in self.last.kept_of(query, batch)


@dataclass(frozen=True, slots=True)
class Written:
    """Result of a task for the driver: its open transaction and one partition in it.

    Without a producer it has no rows.
    """

    task: int
    producer: ProducerIdentity | None = None
    partition: TopicPartition | None = None


def begin(client: KafkaClient, sink: str, before: CommitPlan | None = None) -> CommitPlan:
    """Fence earlier drivers, finish their decided transactions and abort the others.

    `before` is the last plan that this process made for the sink, if any; see `_clean`.
    """
    decider = client.init_producer(sink, timeout_ms=DECIDER_TIMEOUT_MS)
    ledger = _Ledger(client, sink, decider)
    last = ledger.read()
    with ClientPool(client) as pool:
        if last is not None and last.branches:
            last = last.settled(_finish(pool, sink, last.branches))
            ledger.write(last)
        if not _clean(before, decider, last):
            sweep(pool, sink)
    return CommitPlan(sink, decider, last)


def _clean(before: CommitPlan | None, decider: ProducerIdentity, last: LedgerEntry | None) -> bool:
    """Whether no transaction can be open: the last micro-batch was written as a whole, and no other driver began since.

    Every `begin` takes the decider's id and raises its epoch. If the epoch grew by one, no driver came in between. The
    check matters because asking every broker for open transactions costs as much as the rest of a small micro-batch.
    """
    if before is None or last is None or not last.done:
        return False
    known = before.decider.producer_id, before.decider.producer_epoch + 1
    written = last.number > (0 if before.last is None else before.last.number)
    return written and known == (decider.producer_id, decider.producer_epoch)


def commit(client: KafkaClient, plan: CommitPlan, written: Sequence[Written], query: str, batch: int) -> None:
    """Make all rows of the tasks visible, or none."""
    if plan.last is not None and plan.last.covers(query, batch):
        return
    branches = [_branch(plan.sink, task.producer) for task in written if task.producer is not None]
    entry = decided(plan.last, query, batch, len(written), branches)
    if not branches:
        return
    topic = min(task.partition for task in written if task.partition).topic
    ledger = _Ledger(client, plan.sink, plan.decider, TopicPartition(topic, 0))
    with ClientPool(client) as pool:
        check_open(pool, written)
        ledger.write(entry)
        settled = entry.settled(_finish(pool, plan.sink, branches))
        ledger.write(settled)
        with suppress(TidemillError):  # the rows are committed; leftovers end with their timeout
            sweep(pool, plan.sink)
    if not settled.done:
        raise PipelineError(
            f"micro-batch {batch}: the broker aborted transactions after they were decided; start the query again"
        )


def abandon(client: KafkaClient, sink: str, written: Iterable[Written] = ()) -> None:
    """Abort every open transaction, at any stage. If the broker cannot be reached, they end with their timeout."""
    with suppress(TidemillError):
        begin(client, sink)  # must be first: it commits what was decided
        abort(client, written)


def abort(client: KafkaClient, written: Iterable[Written]) -> None:
    """Abort the transactions of tasks."""
    for task in written:
        if task.producer is not None:
            with suppress(TidemillError):
                client.end_transaction(task.producer, commit=False)


def commit_all(client: KafkaClient, sink: str, written: Sequence[Written]) -> None:
    """Commit the tasks of a batch write. It needs no ledger, because Spark does not repeat a batch write."""
    producers = [task.producer for task in written if task.producer is not None]
    if not producers:
        return
    with ClientPool(client) as pool:
        check_open(pool, written)
        pool.each(_commit, producers)
        with suppress(TidemillError):  # the rows are committed; leftovers end with their timeout
            sweep(pool, sink)


def abort_all(client: KafkaClient, sink: str, written: Iterable[Written]) -> None:
    """Undo a batch write. If the broker cannot be reached, the transactions end with their timeout."""
    abort(client, written)
    with suppress(TidemillError), ClientPool(client) as pool:
        sweep(pool, sink)


def check_open(pool: ClientPool, written: Iterable[Written]) -> None:
    """Raise SinkFenced unless every transaction is still open, so that a lost one is never decided."""
    pool.each(_check_open, written)


def _check_open(client: KafkaClient, task: Written) -> None:
    if task.producer is None or task.partition is None:
        return
    try:
        client.add_partitions(task.producer, [task.partition])  # already added: the call only checks
    except GIVEN_UP as error:
        raise SinkFenced(
            f"the transaction of task {task.task} was aborted ({error}): the micro-batch took longer than "
            "kafka.transaction.timeout.ms, or the query runs twice; set a longer timeout, or stop the other driver"
        ) from None


def sweep(pool: ClientPool, sink: str) -> None:
    """Abort every open transaction of the sink's tasks."""
    left = pool.client.open_transactions(f"{sink}-")
    pool.each(lambda client, name: client.init_producer(name), sorted(left))


class _Ledger:
    """The ledger entry of a sink, stored as committed offsets of its groups under any partition that exists."""

    def __init__(
        self, client: KafkaClient, sink: str, decider: ProducerIdentity, partition: TopicPartition | None = None
    ) -> None:
        self._client = client
        self._sink = sink
        self._decider = decider
        self._partition = partition

    def read(self) -> LedgerEntry | None:
        found = self._client.group_offsets(self._group(0))
        if not found:
            return None
        partition = max(found, key=lambda each: found[each].offset)
        self._partition = self._partition or partition
        newest = found[partition]
        more = range(1, pieces_of(newest.metadata))
        rest = [self._client.group_offsets(self._group(index), [partition])[partition].metadata for index in more]
        return read_entry(newest.offset, [newest.metadata, *rest])

    def write(self, entry: LedgerEntry) -> None:
        if self._partition is None:
            raise PipelineError("the ledger entry has no partition to be stored under")
        try:
            for index, piece in enumerate(write_entry(entry)):
                noted = {self._partition: GroupOffset(entry.number, metadata=piece)}
                self._client.commit_offsets_in(self._decider, self._group(index), noted)
            self._client.end_transaction(self._decider, commit=True)
        except GIVEN_UP as error:
            raise SinkFenced(
                f"another driver of the same query has taken over ({error}); stop one of the two drivers"
            ) from None

    def _group(self, index: int) -> str:
        return f"{self._sink}.{index}" if index else self._sink


def _finish(pool: ClientPool, sink: str, branches: Iterable[Branch]) -> set[int]:
    """Commit the decided transactions and return the tasks whose transactions are committed. It is idempotent."""

    def finish(client: KafkaClient, branch: Branch) -> int | None:
        with suppress(*GIVEN_UP):
            _commit(client, ProducerIdentity(branch.producer_id, branch.producer_epoch, f"{sink}-{branch.name}"))
            return branch.task
        return None

    return {task for task in pool.each(finish, branches) if task is not None}


def _commit(client: KafkaClient, producer: ProducerIdentity) -> None:
    client.end_transaction(producer, commit=True)


def _branch(sink: str, producer: ProducerIdentity) -> Branch:
    name = (producer.transactional_id or "").removeprefix(f"{sink}-")
    return Branch(name, producer.producer_id, producer.producer_epoch)
