"""Assignors: every partition once, to a subscriber, evenly, and with few moves."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.groups.core.assignors import (
    SERVER_ASSIGNORS,
    _level_topic,
    assign_range,
    assign_round_robin,
    assign_uniform,
    choose_assignor,
)

TOPICS = ["a", "b", "c", "d"]
members = st.dictionaries(
    st.sampled_from([f"m{index}" for index in range(8)]), st.frozensets(st.sampled_from(TOPICS)), max_size=8
)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
Shares = dict[str, frozenset[tuple[str, int]]]


def check(shares: Shares, subscriptions: dict[str, frozenset[str]], sizes: dict[str, int]) -> None:
    given_out = [partition for share in shares.values() for partition in share]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert sorted(given_out) == sorted((topic, index) for topic in wanted for index in range(sizes.get(topic, 0)))
    assert shares.keys() == subscriptions.keys()
    for member, share in shares.items():
        assert {topic for topic, _ in share} <= subscriptions[member]


@settings(max_examples=100, deadline=None)
@given(members, counts, st.data())
def test_every_partition_goes_to_one_subscriber(
    subscriptions: dict[str, frozenset[str]], sizes: dict[str, int], data: st.DataObject
) -> None:
    previous = data.draw(
        st.dictionaries(
            st.sampled_from([f"m{index}" for index in range(8)]),
            st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 15)), max_size=6),
        )
    )
    for shares in (
        assign_range(subscriptions, sizes),
        assign_round_robin(subscriptions, sizes),
        assign_uniform(subscriptions, sizes),
        assign_uniform(subscriptions, sizes, previous),
    ):
        check(shares, subscriptions, sizes)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 8), st.integers(0, 40), st.integers(1, 8))
def test_uniform_is_even_and_moves_no_more_than_it_must(before: int, partitions: int, after: int) -> None:
    def group(size: int) -> dict[str, frozenset[str]]:
        return {f"m{index}": frozenset({"t"}) for index in range(size)}

    old = assign_uniform(group(before), {"t": partitions})
    new = assign_uniform(group(after), {"t": partitions}, old)
    sizes = [len(share) for share in new.values()]
    assert max(sizes) - min(sizes) <= 1
    kept = sum(len(share & old.get(member, frozenset())) for member, share in new.items())
    quota, more = divmod(partitions, after)
    possible = sorted((len(old.get(member, ())) for member in new), reverse=True)
    assert kept == sum(min(had, quota + (place < more)) for place, had in enumerate(possible))


def test_a_topic_is_levelled_by_direct_moves() -> None:
    shares = {"m0": {("a", index) for index in range(5)}, "m1": set()}
    assert _level_topic("a", ["m0", "m1"], shares)
    assert sorted(map(len, shares.values())) == [2, 3]
    assert not _level_topic("a", ["m0", "m1"], shares)


def test_uniform_stays_as_it_is_when_nothing_changes() -> None:
    mixed = {"m0": frozenset({"a", "b"}), "m1": frozenset({"a"}), "m2": frozenset({"b", "c"})}
    sizes = {"a": 6, "b": 6, "c": 3}
    first = assign_uniform(mixed, sizes)
    assert assign_uniform(mixed, sizes, first) == first
    assert sorted(len(share) for share in first.values()) == [5, 5, 5]


def test_a_remainder_goes_to_a_member_that_already_has_its_share() -> None:
    previous = {"m0": [("t", 0)], "m1": [("t", 1)]}
    shares = assign_uniform({"m0": {"t"}, "m1": {"t"}}, {"t": 3}, previous)
    assert shares == {"m0": {("t", 0), ("t", 2)}, "m1": {("t", 1)}}


def test_new_partitions_go_to_the_smallest_share_and_move_no_other() -> None:
    mixed = {"m0": {"a"}, "m1": {"a"}, "m2": {"b"}}
    shares = assign_uniform(mixed, {"a": 6, "b": 1}, {"m0": [("a", 3), ("a", 4), ("a", 5)]})
    assert shares["m0"] == {("a", 3), ("a", 4), ("a", 5)}
    assert shares["m1"] == {("a", 0), ("a", 1), ("a", 2)}


def test_each_new_partition_goes_to_the_subscriber_with_the_smallest_share() -> None:
    shares = assign_uniform({"m0": {"a"}, "m1": {"a"}, "m2": {"b"}}, {"a": 4, "b": 2})
    assert shares == {"m0": {("a", 0), ("a", 2)}, "m1": {("a", 1), ("a", 3)}, "m2": {("b", 0), ("b", 1)}}


def test_mixed_subscriptions_are_as_even_as_they_can_be() -> None:
    shares = assign_uniform({"m0": {"a"}, "m1": {"a", "b"}}, {"a": 4, "b": 10}, {"m1": [("a", 0), ("a", 1)]})
    assert shares["m0"] == {("a", index) for index in range(4)}


def test_range_gives_neighbours_and_the_first_ones_more() -> None:
    shares = assign_range({"x": ["t", "u"], "y": ["t", "u"]}, {"t": 3, "u": 3})
    assert sorted(shares["x"]) == [("t", 0), ("t", 1), ("u", 0), ("u", 1)]
    assert sorted(shares["y"]) == [("t", 2), ("u", 2)]


def test_round_robin_deals() -> None:
    shares = assign_round_robin({"x": ["t", "u"], "y": ["t", "u"]}, {"t": 3, "u": 3})
    assert sorted(shares["x"]) == [("t", 0), ("t", 2), ("u", 1)]
    assert sorted(shares["y"]) == [("t", 1), ("u", 0), ("u", 2)]


def test_the_assignor_is_chosen_by_most() -> None:
    assert choose_assignor([]) == "uniform"
    assert choose_assignor([None, "range"]) == "range"
    assert choose_assignor(["range", "uniform", "uniform"]) == "uniform"
    assert sorted(SERVER_ASSIGNORS) == ["range", "roundrobin", "uniform"]


def test_a_difference_of_two_is_levelled() -> None:
    mixed = {"m0": frozenset({"a", "b"}), "m1": frozenset({"a"})}
    shares = assign_uniform(mixed, {"a": 4, "b": 0}, {"m0": [("a", 0), ("a", 1), ("a", 2)], "m1": [("a", 3)]})
    assert sorted(map(len, shares.values())) == [2, 2]


def test_a_partition_that_two_members_claim_stays_with_the_first() -> None:
    pair = {"m0": {"t"}, "m1": {"t"}}
    for _ in range(3):
        shares = assign_uniform(pair, {"t": 3}, {"m0": [("t", 0), ("t", 1)], "m1": [("t", 1)]})
        assert shares == {"m0": {("t", 0), ("t", 1)}, "m1": {("t", 2)}}


def test_a_vote_counts_once() -> None:
    assert choose_assignor(["uniform", "range", "range"]) == "range"
    assert choose_assignor(["range", "uniform", "uniform", "range", "uniform"]) == "uniform"
    assert choose_assignor(["uniform", "range"]) == "range", "a tie goes to the first name"
    assert choose_assignor([None, None]) == "uniform"


def test_a_topic_is_levelled_until_no_share_is_two_larger() -> None:
    shares = {"m0": {("a", 0), ("a", 1)}, "m1": set[tuple[str, int]](), "m2": {("b", 0)}}
    assert _level_topic("a", ["m0", "m1"], shares)
    assert sorted(map(len, shares.values())) == [1, 1, 1]
