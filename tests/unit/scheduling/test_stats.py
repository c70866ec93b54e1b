"""What is counted of scheduled records: lateness without records of the past, and a bounded number of topics."""

import pytest

from tidemill.records.build import NewRecord
from tidemill.scheduling import stats
from tidemill.scheduling.delivery import Due
from tidemill.scheduling.stats import OTHER_TOPICS, ScheduledCounts, ScheduledStats

NOW = 1_800_000_000_000


def due(scheduled_ms: int, produced_ms: int) -> Due:
    return Due(NewRecord(None, b"", timestamp=produced_ms), b"mark", scheduled_ms, 1, NOW + 5_000, None)


def test_a_record_that_was_due_before_it_was_produced_is_not_late() -> None:
    counts = ScheduledStats()
    counts.stored([due(NOW - 250, NOW - 9_000), due(1_000, NOW - 100), due(NOW + 40, NOW - 9_000)], NOW)
    assert counts.delivered == 3
    assert (counts.lateness.count, counts.lateness.total) == (2, 0.25)


def test_only_some_topics_are_counted_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "NAMED_MAX", 2)
    counts = ScheduledCounts()
    for topic in ("a", "b", "c", "d"):
        counts.of(topic).failed += 1
    counts.of(OTHER_TOPICS).dropped += 1
    assert [(topic, each.failed, each.dropped) for topic, each in counts] == [
        (OTHER_TOPICS, 2, 1),
        ("a", 1, 0),
        ("b", 1, 0),
    ]
    counts.forget("a")
    assert [topic for topic, _ in counts] == [OTHER_TOPICS, "b"]
