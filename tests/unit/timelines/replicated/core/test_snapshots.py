"""When a journal is restated."""

from tidemill.timelines.replicated.core.snapshots import JOURNAL_BYTES_MIN, RESTATE_FACTOR, should_restate


def test_a_short_journal_is_not_restated() -> None:
    assert not should_restate(JOURNAL_BYTES_MIN, 0)
    assert should_restate(JOURNAL_BYTES_MIN + 1, 0)


def test_a_journal_is_restated_when_most_of_it_is_old() -> None:
    restated = JOURNAL_BYTES_MIN
    assert not should_restate(RESTATE_FACTOR * restated, restated)
    assert should_restate(RESTATE_FACTOR * restated + 1, restated)
