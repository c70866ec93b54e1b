"""Which segments go, by time and by size."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.model.topic_settings import TopicSettings, parse
from tidemill.streams.core.retention import SegmentFacts, retained_start, roll_due

NOW = 1_000_000


def topic(**overrides: Any) -> TopicSettings:
    return parse({"retention.ms": "-1"} | {name.replace("_", "."): str(value) for name, value in overrides.items()})


def row(*sizes: int, newest: int = NOW) -> list[SegmentFacts]:
    """Segments of ten records each, the oldest ten time units older for each that follows."""
    count = len(sizes)
    return [
        SegmentFacts(10 * place, 10 * place + 10, size, newest - 10 * (count - 1 - place), 0)
        for place, size in enumerate(sizes)
    ]


def test_by_time_old_segments_go_even_the_one_being_written() -> None:
    segments = row(5, 5, 5)
    assert [retained_start(segments, topic(retention_ms=age), 0, NOW) for age in (100, 20, 19, 9)] == [0, 0, 10, 20]
    assert retained_start(segments, topic(retention_ms=1), 0, NOW + 5) == 30
    assert retained_start(segments, topic(retention_ms=1, cleanup_policy="compact"), 0, NOW + 5) == 0


def test_records_without_a_time_are_as_old_as_the_segment_behind_them() -> None:
    timeless = [
        SegmentFacts(10 * place, 10 * place + 10, 5, -1, began) for place, began in enumerate((NOW - 60, NOW - 50, 0))
    ]
    ages = (49, 50, 1000)
    assert [retained_start(timeless, topic(retention_ms=age), 0, NOW) for age in ages] == [10, 0, 0]


def test_by_size_at_least_the_limit_stays() -> None:
    segments = row(100, 100, 100)
    sizes = (-1, 0, 99, 100, 200, 250, 300)
    starts = [retained_start(segments, topic(retention_bytes=size), 0, NOW) for size in sizes]
    assert starts == [0, 20, 20, 20, 10, 0, 0]


def test_the_start_never_goes_back() -> None:
    assert retained_start(row(100, 100), topic(retention_bytes=100), 15, NOW) == 15


def test_an_old_segment_is_closed_unless_it_is_empty() -> None:
    facts = SegmentFacts(0, 10, 5, NOW, NOW - 100)
    assert roll_due(facts, topic(segment_ms=100), NOW, 0.5)
    assert not roll_due(facts, topic(segment_ms=101), NOW, 0.5)
    assert not roll_due(facts._replace(size_bytes=0), topic(segment_ms=100), NOW, 0.5)
    assert roll_due(facts, topic(segment_ms=110, segment_jitter_ms=20), NOW, 0.5)
    assert not roll_due(facts, topic(segment_ms=110, segment_jitter_ms=20), NOW, 0.4)
    assert roll_due(facts, topic(segment_ms=110, segment_jitter_ms=10**9), NOW, 0.99), "the age is never negative"


def test_a_compacted_segment_is_closed_within_the_maximum_compaction_lag() -> None:
    facts = SegmentFacts(0, 10, 5, NOW, NOW - 100)
    limits = {"segment_ms": 200, "max_compaction_lag_ms": 100}
    assert roll_due(facts, topic(cleanup_policy="compact", **limits), NOW, 0.0)
    assert not roll_due(facts, topic(cleanup_policy="compact", **limits), NOW - 1, 0.0)
    assert not roll_due(facts, topic(**limits), NOW, 0.0)
    assert roll_due(facts, topic(cleanup_policy="compact", segment_ms=100), NOW, 0.0)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=8), st.integers(0, 2000))
@settings(max_examples=100, deadline=None)
def test_retention_by_size_keeps_no_unneeded_segment(sizes: list[int], limit: int) -> None:
    segments = row(*sizes)
    start = retained_start(segments, topic(retention_bytes=limit), 0, NOW)
    stays = [segment.size_bytes for segment in segments if segment.base_offset >= start]
    assert sum(stays) >= min(limit, sum(sizes))
    assert len(stays) == 1 or sum(stays[1:]) < limit or sum(stays) == 0
