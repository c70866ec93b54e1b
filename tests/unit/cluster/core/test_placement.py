"""Partitions spread evenly over brokers and racks, and always the same way."""

from collections import Counter
from itertools import product

import pytest

from tidemill.cluster.core.placement import PARTITIONS_MAX, check_rack, place, rack_doubt
from tidemill.model.errors import InvalidConfig, InvalidPartitions, InvalidReplicationFactor

BROKERS = [1, 2, 3, 4, 5, 6]
RACKS: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}


@pytest.mark.parametrize(("count", "copies"), list(product(range(1, 7), range(1, 7))))
def test_all_brokers_carry_and_lead_the_same(count: int, copies: int) -> None:
    brokers = BROKERS[:count]
    if copies > count:
        with pytest.raises(InvalidReplicationFactor, match=f"number of brokers, {count}"):
            place(brokers, 0, 12, copies)
        return
    partitions = place(brokers, 0, 60, copies, start=7)
    leads = Counter(info.leader for info in partitions)
    carries = Counter(node for info in partitions for node in info.replicas)
    assert set(leads.values()) == {60 // count}
    assert set(carries.values()) == {60 * copies // count}
    assert all(len(set(info.replicas)) == copies and info.isr == info.replicas for info in partitions)


def test_a_lost_broker_is_followed_by_all_others() -> None:
    """Its partitions have second replicas on every other broker, not all on one."""
    partitions = place(BROKERS, 0, 60, 2)
    following = {info.replicas[1] for info in partitions if info.leader == 1}
    assert following == {2, 3, 4, 5, 6}


@pytest.mark.parametrize("copies", [2, 3])
def test_no_rack_holds_two_while_another_holds_none(copies: int) -> None:
    for info in place(BROKERS, 0, 60, copies, racks=RACKS, start=3):
        assert len({RACKS[node] for node in info.replicas}) == copies


def test_more_copies_than_racks_spread_all_the_same() -> None:
    for info in place(BROKERS, 0, 60, 5, racks=RACKS):
        assert len({RACKS[node] for node in info.replicas[:3]}) == 3


def test_the_same_question_gets_the_same_answer() -> None:
    assert place([3, 1, 2], 0, 9, 2, start=5) == place([1, 2, 3], 0, 9, 2, start=5)
    whole = place(BROKERS, 0, 20, 3, racks=RACKS, start=5)
    assert place(BROKERS, 12, 20, 3, racks=RACKS, start=5) == whole[12:]


@pytest.mark.parametrize(
    ("rack", "said"),
    [("z", "rack 'z' is not one of the cluster's racks"), (None, "this broker has no rack"), ("", "no rack")],
)
def test_a_rack_that_the_cluster_does_not_have_is_refused(rack: str | None, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        check_rack(rack, ("a", "b"))


def test_any_rack_will_do_unless_they_are_listed() -> None:
    check_rack("z", ())
    check_rack(None, ())
    check_rack("a", ("a", "b"))


def test_a_broker_with_a_rack_among_others_without_is_odd_and_the_other_way_round() -> None:
    assert rack_doubt("a", []) is None
    assert rack_doubt(None, [None, ""]) is None
    assert rack_doubt("a", ["b", None]) is None
    assert rack_doubt(None, ["b", "a", None]) == "this broker has no --rack, but others are in a, b"
    assert rack_doubt("a", [None, ""]) == "this broker is in rack a, but no other broker has a --rack"


@pytest.mark.parametrize(("first", "total"), [(0, 1), (0, PARTITIONS_MAX), (PARTITIONS_MAX - 1, PARTITIONS_MAX)])
def test_the_first_and_the_last_number_of_partitions_are_placed(first: int, total: int) -> None:
    assert [info.index for info in place([1], first, total, 1)] == list(range(first, total))


@pytest.mark.parametrize(("first", "total"), [(0, 0), (3, 3), (0, PARTITIONS_MAX + 1)])
def test_a_number_of_partitions_outside_of_the_limits_is_refused(first: int, total: int) -> None:
    with pytest.raises(InvalidPartitions, match=f"between {first + 1} and 10000"):
        place([1], first, total, 1)
