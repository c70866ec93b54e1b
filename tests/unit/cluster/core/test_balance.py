"""Moves that even out a cluster: few, and to where racks stay spread."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tidemill.cluster.core.balance import rebalance
from tidemill.cluster.core.placement import place
from tidemill.model.topics import TopicPartition

Carried = dict[TopicPartition, tuple[int, ...]]


def carried(brokers: list[int], partitions: int, copies: int) -> Carried:
    return {TopicPartition("t", info.index): info.replicas for info in place(brokers, 0, partitions, copies)}


def loads(after: Carried) -> Counter[int]:
    return Counter(node for replicas in after.values() for node in replicas)


def test_a_balanced_assignment_does_not_change() -> None:
    assert rebalance(carried([1, 2, 3], 12, 3), [1, 2, 3]) == {}
    assert rebalance({}, [1, 2]) == {}


def test_a_new_broker_gets_its_share_and_no_more() -> None:
    before = carried([1, 2, 3], 12, 2)
    moves = rebalance(before, [1, 2, 3, 4])
    after = {**before, **moves}
    assert loads(after) == {1: 6, 2: 6, 3: 6, 4: 6}
    copied = sum(len(set(after[key]) - set(before[key])) for key in before)
    assert copied == 6, "only what the new broker lacks is copied"
    assert set(Counter(replicas[0] for replicas in after.values()).values()) == {3}


def test_removed_brokers_are_replaced() -> None:
    before = carried([1, 2, 3], 6, 2)
    after = {**before, **rebalance(before, [1, 2])}
    assert all(set(replicas) == {1, 2} for replicas in after.values())
    nowhere = rebalance(carried([1, 2, 3], 3, 3), [1, 2])
    assert all(3 in replicas for replicas in nowhere.values()), "a third copy has no place"


@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True), max_size=20),
    st.sets(st.integers(1, 6), min_size=3),
)
def test_any_cluster_becomes_even(replicas: list[list[int]], brokers: set[int]) -> None:
    racks: dict[int, str | None] = {node: "ab"[node % 2] for node in range(1, 7)}
    before = {TopicPartition("t", index): tuple(each) for index, each in enumerate(replicas)}
    after = {**before, **rebalance(before, sorted(brokers), racks)}
    for key, now in after.items():
        assert len(now) == len(before[key])
        assert len(set(now)) == len(now)
        assert set(now) <= brokers
        if set(before[key]) <= brokers:
            assert len({racks[node] for node in now}) >= min(2, len({racks[node] for node in before[key]}))
    free = {**before, **rebalance(before, sorted(brokers))}
    spread = Counter(dict.fromkeys(brokers, 0)) + loads(free)
    assert max(spread.values(), default=0) - min((spread[node] for node in brokers), default=0) <= 1
    assert rebalance(free, sorted(brokers)) == {}


def test_a_replica_of_a_lost_broker_goes_to_a_rack_without_one() -> None:
    racks: dict[int, str | None] = {1: "b", 2: "a", 3: "a", 4: "b"}
    part = TopicPartition("t", 0)
    assert rebalance({part: (1, 2)}, [2, 3, 4], racks) == {part: (4, 2)}
    assert rebalance({part: (1, 4)}, [2, 3, 4], racks) == {part: (2, 4)}
