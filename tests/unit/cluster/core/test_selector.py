"""Which brokers a client should talk to."""

from tidemill.cluster.core.selector import CONSUMERS_GOOD, CONSUMERS_MAX, Candidate, choose


def ranked(topic: str, *loads: Candidate) -> list[int]:
    return [choice.node_id for choice in choose(topic, loads)]


def test_brokers_that_already_serve_the_topic_rank_first() -> None:
    assert ranked("a", Candidate(1, {}), Candidate(2, {"a": 1}), Candidate(3, {"a": 3})) == [3, 2, 1]


def test_enough_consumers_are_enough() -> None:
    full = Candidate(1, {"a": CONSUMERS_GOOD})
    assert ranked("a", full, Candidate(2, {"b": 1, "c": 1}), Candidate(3, {"b": 9})) == [3, 2, 1]


def test_no_broker_gets_more_than_the_most_unless_all_have() -> None:
    most, over = Candidate(1, {"a": CONSUMERS_MAX}), Candidate(2, {"a": CONSUMERS_MAX - 1})
    assert ranked("a", most, over) == [2]
    assert ranked("a", most) == [1]


def test_eight_consumers_on_four_brokers_use_two() -> None:
    """The example of the design: fewer brokers read the topic, and none is hot."""
    loads = {node: dict[str, int]() for node in (1, 2, 3, 4)}
    for _ in range(8):
        best = choose("a", [Candidate(node, load) for node, load in loads.items()])[0].node_id
        loads[best]["a"] = loads[best].get("a", 0) + 1
    assert sorted(load.get("a", 0) for load in loads.values()) == [0, 0, 4, 4]


def test_the_unwell_come_last_and_weights_fall() -> None:
    choices = choose("a", [Candidate(1, {"a": 2}, healthy=False), Candidate(2, {}), Candidate(3, {"b": 1})])
    assert [choice.node_id for choice in choices] == [2, 3, 1]
    weights = [choice.weight for choice in choices]
    assert weights == sorted(weights, reverse=True)
    assert 95 <= sum(weights) <= 100
    assert choose("a", []) == ()
