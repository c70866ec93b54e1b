"""The driver's half of an exactly-once sink: a commit in two phases over the transactions of the tasks.

Every task writes in a transaction of its own and leaves it open. The driver then makes one durable note that names all
of them (the decision), and only then commits them, over a few connections and in no order. The note is an entry of the
sink's ledger (see `core.ledger`), written in a transaction of the sink's own id, the decider. So there is one moment at
which the whole micro-batch is decided: the commit of the decider's transaction.

- Before it, whoever starts the query again aborts everything: nothing of the micro-batch was visible.
- After it, whoever starts the query again commits what is left, and the tasks of the repeated micro-batch write
  nothing. How many tasks it has now, and which rows they have, does not matter.

`begin` is called before the tasks of every micro-batch. It takes the decider's id, which fences every earlier driver:
none of them can decide any more, so what the ledger says now is final. Then it finishes what was decided and aborts
what was not. Only after that the tasks may take their ids, because taking an id aborts its open transaction.

Attempts at a task that do not count (they failed with their machine, or were speculative and came second) may leave
transactions open, which readers of committed records would wait for. The driver does not know of them: the brokers tell
what is open under the sink's name when everything that counts is committed, and that is aborted.

What must never happen: a task's id is taken while the ledger has a decision to be finished; a branch is aborted before
the decider's id was taken.

Kafka gives up a transaction that is open for longer than its timeout, a decided one too. `_finish` finds out which; if
all or none were committed in time, nothing special follows, otherwise the entry keeps the tasks whose rows are
visible, and only the others write again (see `core.ledger.decided` for what that asks of the query).
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
from tidemill.pipelines.client_pool import Crew
from tidemill.pipelines.core.errors import PipelineError, SinkFenced
from tidemill.pipelines.core.ledger import Branch, LedgerEntry, decided, pieces_of, read_entry, write_entry

DECIDER_TIMEOUT_MS = 60_000
GIVEN_UP = (ProducerFenced, InvalidProducerEpoch, InvalidTxnState, InvalidProducerIdMapping)
"""What brokers say of a transaction that is no longer the producer's: it timed out, or somebody took its id."""


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What the tasks of a micro-batch are told: the sink's name, who may decide, and what was decided before."""

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
    """What a task tells the driver: its open transaction, and one partition in it. Without a producer: no rows."""

    task: int
    producer: ProducerIdentity | None = None
    partition: TopicPartition | None = None


def begin(client: KafkaClient, sink: str, before: CommitPlan | None = None) -> CommitPlan:
    """Fence earlier drivers, finish what they had decided, abort the rest.

    `before` is the plan that this process made last for the sink, if it did: see `_clean`.
    """
    decider = client.init_producer(sink, timeout_ms=DECIDER_TIMEOUT_MS)
    ledger = _Ledger(client, sink, decider)
    last = ledger.read()
    with Crew(client) as crew:
        if last is not None and last.branches:
            last = last.settled(_finish(crew, sink, last.branches))
            ledger.write(last)
        if not _clean(before, decider, last):
            sweep(crew, sink)
    return CommitPlan(sink, decider, last)


def _clean(before: CommitPlan | None, decider: ProducerIdentity, last: LedgerEntry | None) -> bool:
    """Whether nothing can be open: what was begun before was written as a whole, and nobody else began since.

    Whoever begins takes the decider's id and so raises its epoch: the next one says that nobody was in between. To ask
    every broker what is open costs as much as the rest of a small micro-batch.
    """
    if before is None or last is None or not last.done:
        return False
    known = before.decider.producer_id, before.decider.producer_epoch + 1
    written = last.number > (0 if before.last is None else before.last.number)
    return written and known == (decider.producer_id, decider.producer_epoch)


def commit(client: KafkaClient, plan: CommitPlan, told: Sequence[Written], query: str, batch: int) -> None:
    """Make visible what the tasks wrote: all of it, or nothing."""
    if plan.last is not None and plan.last.covers(query, batch):
        return
    branches = [_branch(plan.sink, task.producer) for task in told if task.producer is not None]
    entry = decided(plan.last, query, batch, len(told), branches)
    if not branches:
        return
    topic = min(task.partition for task in told if task.partition).topic
    ledger = _Ledger(client, plan.sink, plan.decider, TopicPartition(topic, 0))
    with Crew(client) as crew:
        check_open(crew, told)
        ledger.write(entry)
        settled = entry.settled(_finish(crew, plan.sink, branches))
        ledger.write(settled)
        with suppress(TidemillError):  # the rows are there
            sweep(crew, plan.sink)
    if not settled.done:
        raise PipelineError(
            f"micro-batch {batch}: the broker gave up transactions that were decided; start the query again"
        )


def abandon(client: KafkaClient, sink: str, told: Iterable[Written] = ()) -> None:
    """Leave nothing open, whatever had been reached; what the broker cannot be told now ends with its timeout."""
    with suppress(TidemillError):
        begin(client, sink)  # first of all: it commits what may have been decided
        abort(client, told)


def abort(client: KafkaClient, told: Iterable[Written]) -> None:
    """Undo what tasks wrote."""
    for task in told:
        if task.producer is not None:
            with suppress(TidemillError):
                client.end_transaction(task.producer, commit=False)


def commit_all(client: KafkaClient, sink: str, told: Sequence[Written]) -> None:
    """Commit the tasks of a batch write, which nobody repeats: without a ledger."""
    producers = [task.producer for task in told if task.producer is not None]
    if not producers:
        return
    with Crew(client) as crew:
        check_open(crew, told)
        crew.each(_commit, producers)
        with suppress(TidemillError):  # the rows are there
            sweep(crew, sink)


def abort_all(client: KafkaClient, sink: str, told: Iterable[Written]) -> None:
    """Undo a batch write; what the broker cannot be told now ends with its timeout."""
    abort(client, told)
    with suppress(TidemillError), Crew(client) as crew:
        sweep(crew, sink)


def check_open(crew: Crew, told: Iterable[Written]) -> None:
    """Refuse to decide unless every transaction is still there."""
    crew.each(_check_open, told)


def _check_open(client: KafkaClient, task: Written) -> None:
    if task.producer is None or task.partition is None:
        return
    try:
        client.add_partitions(task.producer, [task.partition])  # it is in there: this only asks
    except GIVEN_UP as error:
        raise SinkFenced(
            f"the transaction of task {task.task} is gone: the micro-batch took longer than "
            f"kafka.transaction.timeout.ms, or the query runs twice ({error})"
        ) from None


def sweep(crew: Crew, sink: str) -> None:
    """Abort every transaction of the sink's tasks that is open."""
    left = crew.client.open_transactions(f"{sink}-")
    crew.each(lambda client, name: client.init_producer(name), sorted(left))


class _Ledger:
    """The entry of a sink, as offsets of its groups. It is under a partition that exists, whichever."""

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
            raise PipelineError("an entry needs a partition to be kept under")
        try:
            for index, piece in enumerate(write_entry(entry)):
                noted = {self._partition: GroupOffset(entry.number, metadata=piece)}
                self._client.commit_offsets_in(self._decider, self._group(index), noted)
            self._client.end_transaction(self._decider, commit=True)
        except GIVEN_UP as error:
            raise SinkFenced(f"another driver of the same query has taken over ({error})") from None

    def _group(self, index: int) -> str:
        return f"{self._sink}.{index}" if index else self._sink


def _finish(crew: Crew, sink: str, branches: Iterable[Branch]) -> set[int]:
    """Commit what was decided; the tasks whose transactions are committed now. Doing it again changes nothing."""

    def finish(client: KafkaClient, branch: Branch) -> int | None:
        with suppress(*GIVEN_UP):
            _commit(client, ProducerIdentity(branch.producer_id, branch.producer_epoch, f"{sink}-{branch.name}"))
            return branch.task
        return None

    return {task for task in crew.each(finish, branches) if task is not None}


def _commit(client: KafkaClient, producer: ProducerIdentity) -> None:
    client.end_transaction(producer, commit=True)


def _branch(sink: str, producer: ProducerIdentity) -> Branch:
    name = (producer.transactional_id or "").removeprefix(f"{sink}-")
    return Branch(name, producer.producer_id, producer.producer_epoch)
