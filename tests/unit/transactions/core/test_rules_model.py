"""The rules against a model: producers with zombies, lost answers, late batches, timeouts and crashes between markers.

The model knows which batch was written by which transaction of which instance. Whatever the order of events:
- all batches of one transaction share one outcome, and it is the outcome that its producer was given;
- nothing of an instance is committed unless that instance asked for it;
- with an epoch per transaction (KIP-890) a batch that arrives late never joins another transaction;
- when all markers are written, no partition has an open transaction.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidemill.model.errors import ConcurrentTransactions, InvalidTxnState, KafkaError
from tidemill.model.topics import TopicPartition
from tidemill.transactions.core import rules
from tidemill.transactions.core.records import write_key, write_value
from tidemill.transactions.core.rules import Decision, InitProducer
from tidemill.transactions.core.state import NO_PRODUCER, ProducerIdAndEpoch, Transaction, TransactionStatus
from tidemill.transactions.core.table import TransactionTable

NAME = "a"
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
INSTANCES_MAX = 3
TIMEOUT_MS = 10_000

Batch = tuple[int, int]  # instance, its transaction


@dataclass
class Instance:
    """A running producer: what it believes, and what it wants."""

    number: int
    name: str
    identity: ProducerIdAndEpoch = NO_PRODUCER
    transaction: int = 0
    written: bool = False
    wish: bool | None = None
    asking: bool = False
    late: list[tuple[ProducerIdAndEpoch, TopicPartition, Batch]] = field(default_factory=list)


class Partition:
    """A partition's view of producers: the highest epoch, the open batches, the fate of the others."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.open: defaultdict[int, list[Batch]] = defaultdict(list)
        self.fates: list[tuple[Batch, bool]] = []

    def append(self, who: ProducerIdAndEpoch, batch: Batch) -> bool:
        if who.epoch < self.epochs.get(who.producer_id, -1):
            return False
        self.epochs[who.producer_id] = who.epoch
        self.open[who.producer_id].append(batch)
        return True

    def mark(self, who: ProducerIdAndEpoch, commit: bool) -> None:
        if who.epoch < self.epochs.get(who.producer_id, -1):
            return
        self.epochs[who.producer_id] = who.epoch
        self.fates += [(batch, commit) for batch in self.open.pop(who.producer_id, [])]


class Transactions(RuleBasedStateMachine):
    """Random lives of producers."""

    @initialize(bump=st.booleans())
    def begin(self, bump: bool) -> None:
        self.bump = bump
        self.now_ms = 0
        self.spare = 0
        self.table = TransactionTable()
        self.journal: list[tuple[bytes, bytes]] = []
        self.partitions = {partition: Partition() for partition in PARTITIONS}
        self.instances: list[Instance] = []
        self.asked: set[Batch] = set()
        self.reported: dict[Batch, bool] = {}
        self.marked: defaultdict[str, set[TopicPartition]] = defaultdict(set)
        self.start_instance()

    def apply(self, outcome: Decision) -> ProducerIdAndEpoch:
        if outcome.change is not None:
            record = write_key(outcome.change.transactional_id), write_value(outcome.change)
            self.journal.append(record)
            self.table.replay(*record, self.now_ms)
        if outcome.uses(self.spare):
            self.spare += 1
        if outcome.error is not None:
            raise outcome.error
        return outcome.identity

    def known(self, name: str) -> Transaction | None:
        return self.table.get(name)

    @precondition(lambda self: len(self.instances) < INSTANCES_MAX)
    @rule()
    def start_instance(self) -> None:
        self.instances.append(Instance(len(self.instances), NAME))
        self.ask_identity(self.instances[-1], answered=True)

    @rule(data=st.data(), answered=st.booleans())
    def init(self, data: st.DataObject, answered: bool) -> None:
        self.ask_identity(data.draw(st.sampled_from(self.instances)), answered)

    def ask_identity(self, instance: Instance, answered: bool) -> None:
        if instance.wish is not None:
            return
        instance.asking, instance.written = True, False
        request = InitProducer(instance.name, TIMEOUT_MS, instance.identity)
        try:
            identity = self.apply(
                rules.init_producer(
                    self.known(instance.name), request, spare_producer_id=self.spare, now_ms=self.now_ms
                )
            )
        except KafkaError:
            return
        if answered:
            self.next_transaction(instance, identity)

    @rule(data=st.data(), where=st.sampled_from(PARTITIONS), delayed=st.booleans())
    def write(self, data: st.DataObject, where: TopicPartition, delayed: bool) -> None:
        instance = data.draw(st.sampled_from(self.instances))
        if instance.asking or instance.wish is not None:
            return
        batch = (instance.number, instance.transaction)
        try:
            self.apply(rules.add_partitions(self.known(instance.name), instance.identity, {where}, self.now_ms))
        except KafkaError:
            return
        if delayed:
            instance.late.append((instance.identity, where, batch))
        else:
            self.append(instance.name, instance.identity, where, batch)
        instance.written = True

    @precondition(lambda self: any(instance.late for instance in self.instances))
    @rule(data=st.data())
    def deliver_late(self, data: st.DataObject) -> None:
        instance = data.draw(st.sampled_from([each for each in self.instances if each.late]))
        identity, where, batch = instance.late.pop(0)
        if self.bump or batch[1] == instance.transaction:
            self.append(instance.name, identity, where, batch)

    def append(self, name: str, who: ProducerIdAndEpoch, where: TopicPartition, batch: Batch) -> None:
        partition = self.partitions[where]
        if not partition.open.get(who.producer_id):
            try:
                rules.check_partition(self.known(name), who, where)
            except KafkaError:
                return
        partition.append(who, batch)

    @precondition(lambda self: any(instance.written for instance in self.instances))
    @rule(data=st.data(), commit=st.booleans(), answered=st.booleans())
    def end(self, data: st.DataObject, commit: bool, answered: bool) -> None:
        instance = data.draw(st.sampled_from([each for each in self.instances if each.written]))
        instance.wish = commit if instance.wish is None else instance.wish
        batch = (instance.number, instance.transaction)
        if instance.wish:
            self.asked.add(batch)
        try:
            identity = self.apply(
                rules.end_transaction(
                    self.known(instance.name),
                    instance.identity,
                    commit=instance.wish,
                    bump=self.bump,
                    spare_producer_id=self.spare,
                    now_ms=self.now_ms,
                )
            )
        except ConcurrentTransactions:
            return
        except InvalidTxnState as error:
            raise AssertionError("the producer's own transaction was lost") from error
        except KafkaError:
            instance.written, instance.wish = False, None
            return
        if answered:
            self.reported[batch] = instance.wish
            self.next_transaction(instance, identity)

    def next_transaction(self, instance: Instance, identity: ProducerIdAndEpoch) -> None:
        instance.identity, instance.wish, instance.written, instance.asking = identity, None, False, False
        instance.transaction += 1

    @precondition(lambda self: self.table.unfinished())
    @rule(data=st.data())
    def write_one_marker(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.table.unfinished()))
        known = self.known(name)
        assert known is not None
        missing = sorted(known.partitions - self.marked[name])
        if missing:
            where = data.draw(st.sampled_from(missing))
            self.partitions[where].mark(known.identity, known.commits)
            self.marked[name].add(where)
        else:
            self.finish(name)

    def finish(self, name: str) -> None:
        known = self.known(name)
        assert known is not None
        for where in sorted(known.partitions - self.marked.pop(name, set())):
            self.partitions[where].mark(known.identity, known.commits)
        self.apply(Decision(rules.complete(known, self.now_ms)))

    @rule()
    def crash(self) -> None:
        before = list(self.table)
        self.table = TransactionTable()
        for key, value in self.journal:
            self.table.replay(key, value, self.now_ms, self.now_ms)
        assert sorted(map(repr, self.table)) == sorted(map(repr, before))
        self.marked.clear()

    @rule(span_ms=st.integers(1, 8_000))
    def wait(self, span_ms: int) -> None:
        self.now_ms += span_ms
        for name in self.table.late(self.now_ms):
            known = self.known(name)
            assert known is not None
            self.apply(rules.time_out(known, self.now_ms))

    @invariant()
    def fates_agree(self) -> None:
        fates: defaultdict[Batch, set[bool]] = defaultdict(set)
        for partition in self.partitions.values():
            for batch, committed in partition.fates:
                fates[batch].add(committed)
        for batch, seen in fates.items():
            assert len(seen) == 1, f"{batch} is torn"
            assert seen != {True} or batch in self.asked, f"{batch} was committed by another producer"
            assert batch not in self.reported or seen == {self.reported[batch]}, f"{batch} had another response"

    def teardown(self) -> None:
        for name in self.table.unfinished():
            self.finish(name)
        self.wait(TIMEOUT_MS + 1)
        for name in self.table.unfinished():
            self.finish(name)
        self.fates_agree()
        assert not any(partition.open for partition in self.partitions.values())
        assert all(known.state is not TransactionStatus.ONGOING for known in self.table)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
