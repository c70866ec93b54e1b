"""Filters that reach the source: what they let through is always read, and other partitions and offsets are not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.model.topics import TopicPartition
from tidemill.pipelines.source.core.offsets import OffsetRange
from tidemill.pipelines.source.core.pushdown import Comparison, Pushed

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WHOLE = OffsetRange(TopicPartition("orders", 1), 10, 100)
EXACT = {
    "EqualTo": lambda found, value: found == value,
    "EqualNullSafe": lambda found, value: found == value,
    "GreaterThan": lambda found, value: found > value,
    "GreaterThanOrEqual": lambda found, value: found >= value,
    "LessThan": lambda found, value: found < value,
    "LessThanOrEqual": lambda found, value: found <= value,
    "In": lambda found, value: found in value,
}


def at(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def comparisons(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Comparison]:
    one = st.builds(Comparison, st.just(column), st.sampled_from(sorted(set(EXACT) - {"In"})), values, st.booleans())
    many = st.builds(Comparison, st.just(column), st.just("In"), st.lists(values, max_size=3).map(tuple), st.booleans())
    return one | many


drawn = st.lists(
    comparisons("offset", st.integers(0, 20))
    | comparisons("partition", st.integers(0, 3))
    | comparisons("topic", st.sampled_from(["a", "b", "ab"]))
    | comparisons("timestamp", st.integers(-3000, 12_000).map(at)),
    max_size=4,
)


@settings(max_examples=100)
@given(drawn, st.lists(st.tuples(st.integers(0, 20), st.integers(0, 11)), max_size=20), st.integers(0, 3))
def test_every_row_that_passes_the_filters_is_read(
    filters: list[Comparison], records: list[tuple[int, int]], partition: int
) -> None:
    part = TopicPartition("a", partition)
    pushed = Pushed.of(filters)
    read = pushed.cut(OffsetRange(part, 0, 21))
    for offset, ms in records:
        row = {"topic": "a", "partition": partition, "offset": offset, "timestamp": at(ms * 1000)}
        if all(EXACT[each.kind](row[each.column], each.value) is not each.negated for each in filters):
            assert pushed.wants(part)
            assert read.start <= offset < read.end
            assert pushed.since_ms is None or ms >= pushed.since_ms


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("EqualTo", 12, (12, 13)),
        ("EqualNullSafe", 12, (12, 13)),
        ("GreaterThan", 12, (13, 100)),
        ("GreaterThanOrEqual", 12, (12, 100)),
        ("LessThan", 12, (10, 12)),
        ("LessThanOrEqual", 12, (10, 13)),
        ("In", (50, 12, 30), (12, 51)),
        ("LessThan", 3, (10, 10)),
        ("GreaterThan", 500, (501, 501)),
        ("GreaterThan", 12.5, (10, 100)),
        ("In", (12, None), (10, 100)),
        ("IsNotNull", None, (10, 100)),
    ],
)
def test_offsets_narrow_the_range(kind: str, value: Any, expected: tuple[int, int]) -> None:
    cut = Pushed.of([Comparison("offset", kind, value)]).cut(WHOLE)
    assert (cut.start, cut.end) == expected


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([Comparison("partition", "EqualTo", 1)], True),
        ([Comparison("partition", "EqualTo", 2)], False),
        ([Comparison("partition", "EqualTo", 1, negated=True)], False),
        ([Comparison("partition", "In", (0, 2))], False),
        ([Comparison("partition", "In", (0, None))], True),
        ([Comparison("partition", "IsNull")], False),
        ([Comparison("topic", "StringStartsWith", "or")], True),
        ([Comparison("topic", "StringEndsWith", "or")], False),
        ([Comparison("topic", "StringContains", "x", negated=True)], True),
        ([Comparison("topic", "EqualTo", 5)], True),
        ([Comparison("value", "EqualTo", b"x")], True),
        ([Comparison("partition", "EqualTo", 1), Comparison("topic", "EqualTo", "b")], False),
    ],
)
def test_partitions_that_cannot_match_are_left_out(filters: list[Comparison], wanted: bool) -> None:
    assert Pushed.of(filters).wants(WHOLE.partition) is wanted


def test_times_move_the_beginning_only() -> None:
    low, high = (
        Comparison("timestamp", "GreaterThan", at(5_000_999)),
        Comparison("timestamp", "LessThan", at(9_000_000)),
    )
    assert Pushed.of([low, high]).since_ms == 5000
    assert Pushed.of([high]).since_ms is None
    assert Pushed.of([low, Comparison("timestamp", "EqualTo", at(7_000_000))]).since_ms == 7000
    assert Pushed.of([Comparison("timestamp", "EqualTo", at(-1_000_000))]).since_ms is None
    naive = at(5_000_000).replace(tzinfo=None)
    assert Pushed.of([Comparison("timestamp", "EqualTo", naive)]).comparisons == ()


@pytest.mark.parametrize(
    ("column", "kind", "value", "matches"),
    [
        ("partition", "EqualTo", 2, [2]),
        ("partition", "EqualNullSafe", 2, [2]),
        ("partition", "GreaterThan", 2, [3]),
        ("partition", "GreaterThanOrEqual", 2, [2, 3]),
        ("partition", "LessThan", 2, [1]),
        ("partition", "LessThanOrEqual", 2, [1, 2]),
        ("partition", "In", (1, 3), [1, 3]),
        ("partition", "IsNull", None, []),
        ("partition", "IsNotNull", None, [1, 2, 3]),
        ("topic", "StringStartsWith", "ab", [1, 2, 3]),
        ("topic", "StringEndsWith", "ab", []),
        ("topic", "StringContains", "b", [1, 2, 3]),
        ("topic", "StringContains", "d", []),
    ],
)
def test_a_partition_that_cannot_match_is_not_read(column: str, kind: str, value: object, matches: list[int]) -> None:
    for negated in (False, True):
        pushed = Pushed.of([Comparison(column, kind, value, negated)])
        found = [number for number in (1, 2, 3) if pushed.wants(TopicPartition("abc", number))]
        assert found == ([number for number in (1, 2, 3) if number not in matches] if negated else matches)
