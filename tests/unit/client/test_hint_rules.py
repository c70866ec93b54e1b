"""When a client follows a hint."""

from tidemill.client.hint_rules import AVOID_WINDOWS, WINDOW_MS_MIN, HintRules

WINDOW_MS = 30_000


def test_one_move_in_a_window() -> None:
    rules = HintRules(follows=True)
    assert rules.target(["b:1"], WINDOW_MS, 0, "a:1") == "b:1"
    rules.moved(0)
    assert rules.target(["c:1"], WINDOW_MS, WINDOW_MS - 1, "b:1") is None
    assert rules.target(["c:1"], WINDOW_MS, WINDOW_MS, "b:1") == "c:1"
    assert rules.moves == 1


def test_a_broker_cannot_shorten_the_window_below_a_second() -> None:
    rules = HintRules(follows=True)
    rules.moved(0)
    assert rules.target(["c:1"], -5, WINDOW_MS_MIN - 1, "b:1") is None
    assert rules.target(["c:1"], -5, WINDOW_MS_MIN, "b:1") == "c:1"


def test_hints_to_the_same_broker_and_empty_ones_change_nothing() -> None:
    rules = HintRules(follows=True)
    assert rules.target(["a:1", ""], WINDOW_MS, 0, "a:1") is None
    assert rules.target([], WINDOW_MS, 0, "a:1") is None


def test_a_client_may_ignore_hints() -> None:
    assert HintRules(follows=False).target(["b:1"], WINDOW_MS, 0, "a:1") is None


def test_an_address_that_failed_is_avoided_for_a_while() -> None:
    rules = HintRules(follows=True)
    assert rules.target(["b:1", "c:1"], WINDOW_MS, 0, "a:1") == "b:1"
    rules.failed("b:1", 0)
    assert rules.target(["b:1", "c:1"], WINDOW_MS, 1, "a:1") == "c:1"
    assert rules.target(["b:1"], WINDOW_MS, AVOID_WINDOWS * WINDOW_MS, "a:1") == "b:1"
