"""Hints of one broker: when a plan is made, who gets one, and how long the broker waits for the result."""

from tidemill.cluster.core.broker_load import LoadLevel
from tidemill.cluster.core.hints import PATIENCE_WINDOWS, SETTLE_MS_MAX, SPARE_WINDOWS, TOPICS_MAX, HintPlanner
from tidemill.cluster.core.selector import Candidate

WINDOW_MS = 30_000


def asked(planner: HintPlanner, now_ms: int, *counts: int, clients: int = 8, topic: str = "orders") -> list[int]:
    """The targets of the hints that clients get who ask now."""
    known = [Candidate(number, {topic: count} if count else {}) for number, count in enumerate(counts, 1)]
    found = (planner.hint(topic, f"client-{each}", now_ms, lambda: known) for each in range(clients))
    return [move.target for move in found if move is not None]


def test_a_plan_is_made_when_the_balance_stays_off() -> None:
    planner = HintPlanner(1, WINDOW_MS)
    assert asked(planner, 0, 8, 0) == []
    assert asked(planner, SETTLE_MS_MAX - 1_000, 8, 0) == []
    assert asked(planner, SETTLE_MS_MAX, 8, 0) == [2] * 4


def test_a_short_disorder_moves_no_client() -> None:
    planner = HintPlanner(1, WINDOW_MS)
    for second in range(120):
        counts = (8, 0) if second % 4 else (4, 4)
        assert asked(planner, second * 1_000, *counts) == []


def test_a_broker_waits_a_window_for_the_result() -> None:
    planner = HintPlanner(1, WINDOW_MS)
    asked(planner, 0, 8, 0)
    assert len(asked(planner, 5_000, 8, 0)) == 4
    assert asked(planner, 5_000 + WINDOW_MS - 1_000, 8, 0) == []
    assert asked(planner, 5_000 + WINDOW_MS, 8, 0) == []
    assert len(asked(planner, 10_000 + WINDOW_MS, 8, 0)) == 4, "other clients, because the first four stay"


def test_clients_that_ignore_hints_are_asked_again_much_later() -> None:
    planner = HintPlanner(1, WINDOW_MS)
    seconds = [second for second in range(15 * 30 + 60) if asked(planner, second * 1_000, 8, 0)]
    assert len(seconds) == 4, "all eight within two windows, and once more after ten windows"
    assert seconds[2] - seconds[0] >= PATIENCE_WINDOWS * WINDOW_MS // 1_000


def test_hints_that_no_client_took_end_with_the_window() -> None:
    planner = HintPlanner(1, WINDOW_MS)
    asked(planner, 0, 8, 0, clients=1)
    assert asked(planner, 5_000, 8, 0, clients=1) == [2]
    assert asked(planner, 6_000 + WINDOW_MS, 4, 4) == []


def test_clients_that_fewer_brokers_could_serve_wait_longer_after_each_overload() -> None:
    """Broker 3 has one of eight clients, and broker 1 is overloaded for a while, twice."""
    planner, waits = HintPlanner(3, WINDOW_MS), []
    now_ms = 0
    for level in (LoadLevel.NORMAL, LoadLevel.OVERLOADED, LoadLevel.NORMAL, LoadLevel.OVERLOADED, LoadLevel.NORMAL):
        began_ms, hinted = now_ms, False
        known = [Candidate(1, {"orders": 3}, level=level), Candidate(2, {"orders": 4}), Candidate(3, {"orders": 1})]
        while not hinted and now_ms - began_ms < 20 * WINDOW_MS:
            now_ms += 1_000
            move = planner.hint("orders", f"client-{now_ms}", now_ms, lambda known=known: known)  # type: ignore[misc]  # defaults bind
            hinted = move is not None
        waits.append((now_ms - began_ms) // WINDOW_MS if hinted else None)
    assert waits == [SPARE_WINDOWS, None, 2 * SPARE_WINDOWS, None, 4 * SPARE_WINDOWS]


def test_topics_are_bounded() -> None:
    planner = HintPlanner(1, WINDOW_MS)
    for number in range(TOPICS_MAX + 5):
        asked(planner, 0, 1, clients=1, topic=f"t{number}")
    assert len(planner._topics) == TOPICS_MAX
    asked(planner, PATIENCE_WINDOWS * WINDOW_MS + 1, 1, clients=1, topic="new")
    assert len(planner._topics) == 1
