"""Internal topics get the replicas that their setting names, a few partitions at a time, as brokers come and go."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from uuid import UUID

from tidemill.cluster.core import election
from tidemill.cluster.core.changes import StateChange, live_brokers, plan
from tidemill.cluster.core.growth import GROWING_MAX, MIN_INSYNC, growth, required
from tidemill.cluster.core.image import (
    TOPICS,
    Image,
    PartitionInfo,
    TopicCreated,
    encode_state,
    encode_topic,
    state_key,
)
from tidemill.cluster.core.placement import place
from tidemill.cluster.core.registration import Endpoint, Registration, broker_key, encode_registration
from tidemill.cluster.core.view import KeyChange, View

NAME = "__timelines"
ID = UUID(int=1)
COPIES = {NAME: 3, "__missing": 3}


class Cluster:
    """A view with one topic, created by one broker, and with brokers that come and go."""

    def __init__(self, partitions: int = 2, overrides: Mapping[str, str] | None = None) -> None:
        created = TopicCreated(NAME, ID, place([1], 0, partitions, 1), dict(overrides or {}))
        self.view = View({})
        self.view.apply([KeyChange(TOPICS + NAME, encode_topic(Image().apply(created).by_name[NAME]), 1)])

    def join(self, *node_ids: int, racks: Mapping[int, str] | None = None) -> None:
        for node_id in node_ids:
            one = Registration(
                node_id,
                UUID(int=node_id),
                UUID(int=node_id),
                rack=(racks or {}).get(node_id),
                kafka=Endpoint("h", 9000 + node_id),
            )
            self.view.apply([KeyChange(broker_key(node_id), encode_registration(one), 1)])

    def leave(self, node_id: int) -> None:
        self.view.apply([KeyChange(broker_key(node_id), None, 2)])

    @property
    def infos(self) -> Sequence[PartitionInfo]:
        return self.view.image.by_name[NAME].partitions

    def put(self, info: PartitionInfo) -> None:
        self.view.apply([KeyChange(state_key(ID, info.index), encode_state(info), info.version)])

    def make(self, changes: Sequence[StateChange]) -> Sequence[StateChange]:
        for each in changes:
            self.put(each.after)
        return changes

    def grow(self) -> Sequence[StateChange]:
        return self.make(list(growth(self.view.image, COPIES)))

    def plan(self) -> Sequence[StateChange]:
        return self.make(list(plan(self.view.image)))

    def catch_up(self) -> None:
        """Every live replica is in sync."""
        live = live_brokers(self.view.image)
        for info in self.infos:
            if info.leader in live:
                isr = tuple(node for node in info.replicas if node in live)
                self.put(replace(info, isr=isr, version=info.version + 1))
        self.plan()


def test_a_topic_of_one_broker_gets_replicas_when_others_join() -> None:
    cluster = Cluster()
    cluster.join(1)
    assert cluster.grow() == []
    cluster.join(2, 3)
    grown = cluster.grow()
    assert [(each.after.replicas, each.after.adding, each.after.leader) for each in grown] == [
        ((1, 2, 3), (2, 3), 1)
    ] * 2
    assert cluster.grow() == [], "it is on its way already"
    cluster.catch_up()
    assert [(info.replicas, info.isr, info.adding) for info in cluster.infos] == [((1, 2, 3), (1, 2, 3), ())] * 2
    assert cluster.grow() == []
    assert list(growth(cluster.view.image, {NAME: 1})) == [], "it never loses a replica"


def test_shared_topics_need_no_replicas() -> None:
    cluster = Cluster()
    cluster.join(1, 2, 3)
    assert list(growth(cluster.view.image, COPIES, lambda _: True)) == []


def test_only_a_few_partitions_grow_at_a_time() -> None:
    cluster = Cluster(partitions=3 * GROWING_MAX)
    cluster.join(1, 2, 3)
    for number in (1, 2, 3):
        assert len(cluster.grow()) == GROWING_MAX
        assert cluster.grow() == []
        cluster.catch_up()
        assert sum(len(info.replicas) == 3 for info in cluster.infos) == number * GROWING_MAX
    assert cluster.grow() == []


def test_a_lost_new_broker_is_replaced_and_without_another_one_nothing_is_written() -> None:
    cluster = Cluster(partitions=GROWING_MAX + 1)
    cluster.join(1, 2, 3)
    cluster.grow()
    cluster.leave(3)
    cluster.plan()
    later = cluster.grow()
    assert [each.after.adding for each in later] == [(2,)], "one that waits for a broker does not hold up the others"
    for _ in range(3):
        assert cluster.grow() == []
        assert cluster.plan() == []
    cluster.join(4)
    while cluster.grow():
        cluster.catch_up()
    assert {info.replicas for info in cluster.infos} == {(1, 2, 4)}
    assert all(info.isr == info.replicas and not info.adding for info in cluster.infos)


def test_a_requested_move_is_left_alone() -> None:
    cluster = Cluster(partitions=1)
    cluster.join(1, 2, 3)
    moved = election.reassign(cluster.infos[0], (2,))
    assert moved is not None
    cluster.put(moved)
    assert cluster.grow() == []


def test_replicas_go_to_other_racks_and_to_brokers_with_few() -> None:
    cluster = Cluster(partitions=2)
    cluster.join(1, 2, 3, 4, 5, racks={1: "a", 2: "a", 3: "b", 4: "c", 5: "b"})
    cluster.grow()
    assert [set(info.adding) for info in cluster.infos] == [{3, 4}, {5, 4}]


def test_more_replicas_are_required_when_all_are_in_sync() -> None:
    cluster = Cluster(overrides={MIN_INSYNC: "1", "retention.ms": "-1"})

    def raised(strict: str = NAME) -> list[Mapping[str, str]]:
        return [topic.overrides for topic in required(cluster.view.image, COPIES, {strict})]

    cluster.join(1, 2, 3)
    assert raised() == []
    cluster.grow()
    assert raised() == [], "its new replicas are not in sync"
    cluster.catch_up()
    assert raised() == [{MIN_INSYNC: "2", "retention.ms": "-1"}]
    assert raised("__consumer_offsets") == []
    assert list(required(cluster.view.image, {NAME: 2}, {NAME})) == [], "an operator has added more replicas"
    cluster.leave(3)
    cluster.plan()
    assert raised() == [], "a lost broker would make it unavailable"


def test_growth_ends_whatever_happens_and_keeps_every_replica_that_was_in_sync() -> None:
    for seed in range(200):
        random = Random(seed)
        cluster = Cluster(partitions=random.randint(1, 2 * GROWING_MAX))
        cluster.join(1)
        present = {1}
        for _ in range(30):
            node_id = random.randint(1, 5)
            if node_id in present and len(present) > 1:
                cluster.leave(node_id)
                present.discard(node_id)
            else:
                cluster.join(node_id)
                present.add(node_id)
            cluster.plan()
            before = {info.index: set(info.isr) for info in cluster.infos}
            for _ in range(20):
                if not cluster.grow() and not cluster.plan():
                    break
            else:
                raise AssertionError(f"seed {seed}: it does not end")
            assert all(before[info.index] <= set(info.isr) for info in cluster.infos), f"seed {seed}"
            assert all(set(info.isr) <= set(info.replicas) for info in cluster.infos), f"seed {seed}"
            if random.random() < 0.5:
                cluster.catch_up()
        cluster.join(1, 2, 3, 4, 5)
        cluster.plan()
        for _ in range(20):
            cluster.catch_up()
            cluster.grow()
        assert all(len(info.replicas) >= 3 and not info.adding for info in cluster.infos), f"seed {seed}"
