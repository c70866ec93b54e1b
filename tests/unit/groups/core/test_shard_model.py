"""Groups against a model: members that join, leave, fail and lag in any order, journals that fail, crashes in between.

Classic groups: one leader, generations that only grow in the journal, no waiting member is forgotten, and a committed
offset that only a current member moves. Consumer groups: no partition is ever with two members, by the broker's books
and by what the clients themselves believe to own.
"""

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.group_stage import Client, Stage

from tidemill.groups.core.classic_group import NEVER_MS, ClassicGroup, ClassicState
from tidemill.groups.core.consumer_group import ConsumerGroup, MemberState
from tidemill.groups.core.entries import GroupKey, GroupValue
from tidemill.groups.core.records import decode
from tidemill.groups.core.subscriptions import read_assignment
from tidemill.model.errors import KafkaError, KafkaStorageError
from tidemill.model.topics import TopicPartition

NAMES = ["a", "b", "c"]
names = st.sampled_from(NAMES)
pauses = st.sampled_from([0, 1, 500, 2_999, 3_000, 5_000, 9_999, 10_000, 31_000])


class ClassicModel(RuleBasedStateMachine):
    """One classic group."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage()
        self.waiting: set[str] = set()
        self.expected = -1
        self.next_offset = 0
        self.instance = dict.fromkeys(NAMES[2:], "")

    def _group(self) -> ClassicGroup | None:
        group = self.stage.shard.groups.get("g")
        return group if isinstance(group, ClassicGroup) else None

    def _collect(self) -> None:
        for name, answer in self.stage.reported():
            self.waiting.discard(name)
            if isinstance(answer, KafkaError):
                self.stage.clients[name] = Client(name, instance_id=self.stage.clients[name].instance_id)

    def _try(self, name: str, act: object) -> None:
        try:
            act()  # type: ignore[operator]  # a callable without arguments
        except KafkaStorageError:
            self.waiting.discard(name)
        except KafkaError:
            self.waiting.discard(name)
            self.stage.clients[name] = Client(name, instance_id=self.stage.clients[name].instance_id)
        self._collect()

    @rule(name=names, topics=st.sampled_from(["t", "t,u"]), version=st.sampled_from([3, 8, 9]))
    def join(self, name: str, topics: str, version: int) -> None:
        if name in self.waiting:
            return
        instance = f"i-{name}" if name in self.instance else None
        self.waiting.add(name)
        self._try(
            name,
            lambda: self.stage.join("g", name, topics=topics, version=version, instance=instance, rebalance_ms=5_000),
        )

    @rule(name=names)
    def sync(self, name: str) -> None:
        client = self.stage.client(name)
        if name in self.waiting or client.generation < 0:
            return
        self.waiting.add(name)
        everyone = {each: each.encode() for each in NAMES if self.stage.client(each).member_id}
        self._try(name, lambda: self.stage.sync("g", name, everyone if client.leads else None))

    @rule(members=st.lists(names, min_size=1, unique=True))
    def assemble(self, members: list[str]) -> None:
        """Some come together as they should; the way to a stable group is long for single steps."""
        for _ in range(3):
            for name in members:
                self.join(name, "t", 9)
            for name in members:
                self.sync(name)

    @rule(name=names)
    def beat(self, name: str) -> None:
        if name not in self.waiting:
            with suppress(KafkaError):
                self.stage.beat("g", name)

    @rule(name=names)
    def leave(self, name: str) -> None:
        if name not in self.waiting and self.stage.client(name).member_id:
            self._try(name, lambda: self.stage.leave("g", self.stage.leaver(name)))

    @rule(name=names)
    def restart(self, name: str) -> None:
        """The client dies, also while it waits, and forgets who it was."""
        self.waiting.discard(name)
        self.stage.clients[name] = Client(name, instance_id=self.stage.client(name).instance_id)

    @rule(name=names, lag=st.sampled_from([0, 1, -1]))
    def commit(self, name: str, lag: int) -> None:
        client, group = self.stage.client(name), self._group()
        self.next_offset += 1
        generation, client.generation = client.generation, client.generation - lag
        current = group is not None and client.generation == group.generation and client.member_id in group.members
        try:
            self.stage.commit("g", name, self.next_offset)
        except KafkaError:
            pass
        else:
            no_member = client.generation < 0 and (group is None or group.state is ClassicState.EMPTY)
            assert current or no_member, "a stale member has committed"
            self.expected = self.next_offset
        finally:
            client.generation = generation

    @rule(pause=pauses)
    def wait(self, pause: int) -> None:
        with suppress(KafkaStorageError):
            self.stage.wait(pause)
        self._collect()

    @rule(refuses=st.booleans())
    def journal(self, refuses: bool) -> None:
        self.stage.refuses = refuses

    @rule()
    def crash(self) -> None:
        self.stage.crash()
        self.waiting.clear()
        for client in self.stage.clients.values():
            if self._group() is None or client.member_id not in self._group().members:  # type: ignore[union-attr]
                self.stage.clients[client.name] = Client(client.name, instance_id=client.instance_id)

    @invariant()
    def offsets_are_moved_by_current_members_alone(self) -> None:
        assert self.stage.committed("g") == self.expected

    @invariant()
    def generations_only_grow_in_the_journal(self) -> None:
        seen = [
            entry.value.generation
            for entry in (decode(*record) for record in self.stage.journal)
            if entry is not None and isinstance(entry.key, GroupKey) and isinstance(entry.value, GroupValue)
        ]
        assert seen == sorted(seen)
        group = self._group()
        assert group is None or not seen or group.generation >= seen[-1]

    @invariant()
    def one_leader_and_no_client_waits_for_nothing(self) -> None:
        group = self._group()
        parked: set[object] = set()
        if group is not None:
            assert not group.outbox
            if group.state in {ClassicState.STABLE, ClassicState.COMPLETING}:
                assert group.leader in group.members
                assert group.protocol is not None
            if group.state is ClassicState.EMPTY:
                assert not group.members
            joined = [member for member in group.members.values() if member.join_ticket is not None]
            assert group._joined == len(joined)
            assert not joined or group.state is ClassicState.PREPARING
            assert {m.instance_id: m.member_id for m in group.members.values() if m.instance_id} == group.static
            for member in group.members.values():
                parked |= {member.join_ticket, member.sync_ticket} - {None}
                assert not member.can_expire or group.wake_ms <= member.deadline_ms
        assert self.waiting <= parked

    def teardown(self) -> None:
        """Left alone, a group always comes to rest: everyone's session ends and it is empty."""
        self.stage.refuses = False
        self.stage.wait(1_000_000)
        group = self._group()
        assert group is None or (group.state is ClassicState.EMPTY and group.wake_ms == NEVER_MS)


class ConsumerModel(RuleBasedStateMachine):
    """One consumer group on topics that grow."""

    @initialize()
    def begin(self) -> None:
        self.stage = Stage()
        self.stage.make_topic("t", 3)
        self.stage.make_topic("u", 2)

    def _group(self) -> ConsumerGroup:
        group = self.stage.shard.groups.get("g")
        return group if isinstance(group, ConsumerGroup) else ConsumerGroup("g", self.stage.limits)

    def _pulse(self, name: str, **changes: object) -> bool:
        try:
            self.stage.pulse("g", name, **changes)
        except KafkaStorageError:
            return False
        except KafkaError:
            self.stage.clients[name] = Client(name, instance_id=self.stage.client(name).instance_id)
            return False
        return True

    @rule(name=names, assignor=st.sampled_from([None, "uniform", "range"]), topics=st.sampled_from(["t", "u", "tu"]))
    def subscribe(self, name: str, assignor: str | None, topics: str) -> None:
        client = self.stage.client(name)
        instance = f"i-{name}" if name == "c" else None
        owned = client.owned if client.epoch else frozenset()
        self._pulse(
            name,
            topic_names=tuple(topics),
            server_assignor=assignor,
            owned=owned,
            rebalance_timeout_ms=30_000,
            instance_id=instance,
        )

    @rule(name=names)
    def follow(self, name: str) -> None:
        """A heartbeat of a client that gives up at once what it must."""
        if self.stage.client(name).epoch:
            self._pulse(name)

    @rule(name=names)
    def lag(self, name: str) -> None:
        """Heartbeats of a client that still holds on to what it must give up."""
        client = self.stage.client(name)
        for _ in range(2):
            had = client.owned
            if client.epoch and self._pulse(name) and not had <= client.owned:
                client.owned = had

    @rule(everyone=st.lists(names, min_size=1, unique=True))
    def settle(self, everyone: list[str]) -> None:
        """Some come and follow as they should."""
        for _ in range(3):
            for name in everyone:
                if self.stage.client(name).epoch:
                    self._pulse(name)
                else:
                    self.subscribe(name, None, "tu")

    @rule(name=names)
    def lose_the_answer(self, name: str) -> None:
        client = self.stage.client(name)
        epoch, had = client.epoch, client.owned
        if epoch and self._pulse(name):
            client.epoch, client.owned = epoch, had

    @rule(name=names, for_good=st.booleans())
    def leave(self, name: str, for_good: bool) -> None:
        client = self.stage.client(name)
        if client.epoch and (for_good or client.instance_id):
            self._pulse(name, member_epoch=-1 if for_good else -2)
            if not self.stage.refuses:
                number = len(self.stage.journal)
                self.stage.clients[name] = Client(name, f"{name}-{number}", client.instance_id)

    @rule(keeps=st.booleans())
    def join_as_classic(self, keeps: bool) -> None:
        """A member of the classic protocol joins (again): it keeps what it has, or gives up everything before."""
        client = self.stage.client("k")
        if not keeps:
            client.owned = frozenset()
        names = {shape.topic_id: shape.name for shape in self.stage.topics.values()}
        owned = [TopicPartition(names[topic_id], index) for topic_id, index in client.owned]
        try:
            self.stage.enter("g", "k", topics="t,u", owned=owned)
            client.assignment = b""
            self.stage.sync("g", "k")
        except KafkaStorageError:
            return
        except KafkaError:
            if self._group().members.get(client.member_id) is None:
                self.stage.clients["k"] = Client("k")
            return
        finally:
            self.stage.reported()
        given = read_assignment(client.assignment)
        client.owned = frozenset(
            (self.stage.topics[topic].topic_id, index) for topic, indexes in given.items() for index in indexes
        )

    @rule()
    def beat_as_classic(self) -> None:
        with suppress(KafkaError):
            self.stage.beat("g", "k")

    @rule(pause=pauses)
    def wait(self, pause: int) -> None:
        with suppress(KafkaStorageError):
            self.stage.wait(pause)

    @rule(topic=st.sampled_from("tu"), more=st.integers(1, 2))
    def grow(self, topic: str, more: int) -> None:
        self.stage.make_topic(topic, min(self.stage.topics[topic].partitions + more, 9))

    @rule(refuses=st.booleans())
    def journal(self, refuses: bool) -> None:
        self.stage.refuses = refuses

    @rule()
    def crash(self) -> None:
        self.stage.crash()

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        group = self._group()
        held = [each for current in group.current.values() for each in current.assigned | current.revoking]
        assert len(held) == len(set(held))
        assert group.owners == {
            each: member for member, current in group.current.items() for each in current.assigned | current.revoking
        }

    @invariant()
    def no_two_clients_believe_to_own_it(self) -> None:
        group = self._group()
        believed = [
            each for client in self.stage.clients.values() if client.member_id in group.members for each in client.owned
        ]
        assert len(believed) == len(set(believed))

    @invariant()
    def epochs_are_in_order(self) -> None:
        group = self._group()
        assert group.target_epoch <= group.epoch
        assert group.members.keys() == group.current.keys()
        for current in group.current.values():
            assert current.epoch <= group.target_epoch
            assert (current.state == MemberState.REVOKING) == bool(current.revoking)
        if group.members and group.target_epoch == group.epoch:
            given_out = [each for member in group.members for each in group.targets[member]]
            assert len(given_out) == len(set(given_out))

    def teardown(self) -> None:
        """With everyone following, the group always comes to rest with every partition at its target."""
        self.stage.refuses = False
        self.stage.wait(12_000)  # the classic member is gone after its session
        self.stage.clients.pop("k", None)
        for name, client in self.stage.clients.items():
            if client.member_id not in self._group().members:
                client.epoch, client.owned = 0, frozenset()
                client.member_id = f"{name}-last"
                client.instance_id = None
        for name in list(self.stage.clients):
            if not self._pulse(name):
                self.stage.clients.pop(name)
        if not self.stage.clients:
            return
        self.stage.wait(44_000)
        for _ in range(20):
            for name in self.stage.clients:
                self._pulse(name)
        self.stage.wait(2_000)  # static members that are away are gone now
        for _ in range(20):
            for name in self.stage.clients:
                self._pulse(name)
        group = self._group()
        assert group.state == "Stable"
        assert {member: current.assigned for member, current in group.current.items()} == group.targets


ClassicModel.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
ConsumerModel.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestClassic = ClassicModel.TestCase
TestConsumer = ConsumerModel.TestCase
