"""When a journal is restated."""

from tidemill.timelines.replicated.core.snapshots import RESTATE_FACTOR, should_restate

LEAST = 1_000


def test_a_short_journal_is_not_restated() -> None:
    assert not should_restate(LEAST, 0, LEAST)
    assert should_restate(LEAST + 1, 0, LEAST)


def test_a_journal_is_restated_when_most_of_it_is_old() -> None:
    restated = LEAST
    assert not should_restate(RESTATE_FACTOR * restated, restated, LEAST)
    assert should_restate(RESTATE_FACTOR * restated + 1, restated, LEAST)
