"""Progress, ranges, and how they are cut: nothing is read twice, nothing is left out."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.model.topics import TopicPartition
from tidemill.pipelines.source.core.offsets import (
    TASK_OFFSETS,
    TASKS_MIN,
    OffsetRange,
    QueryProgress,
    limited,
    newcomers,
    packed,
    ranges_between,
    split,
    worth_a_batch,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ranges_strategy = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 5000)), max_size=6).map(
    lambda drawn: [OffsetRange(TopicPartition("t", index), low, low + size) for index, (low, size) in enumerate(drawn)]
)


def test_progress_is_the_json_of_sparks_kafka_source_and_ids() -> None:
    progress = QueryProgress({A1: 4, A0: 2, B0: 1}, {"a": "1f", "b": "2f"})
    kept = progress.to_json()
    assert kept == {"a": {"0": 2, "1": 4}, "b": {"0": 1}, "$ids": {"a": "1f", "b": "2f"}}
    assert QueryProgress.from_json(json.loads(json.dumps(kept))) == progress
    assert QueryProgress.from_json({"a": {"0": 2}}) == QueryProgress({A0: 2})


def test_partitions_that_are_new_or_of_a_new_topic_are_read_from_their_first_record() -> None:
    start = QueryProgress({A0: 5, B0: 9}, {"a": "1", "b": "1"})
    end = QueryProgress({A0: 7, A1: 3, B0: 4}, {"a": "1", "b": "2"})
    assert newcomers(start, end) == {A1, B0}
    found = ranges_between(start, end, {A1: 1, B0: 0})
    assert found == [OffsetRange(A0, 5, 7), OffsetRange(A1, 1, 3), OffsetRange(B0, 0, 4)]


def test_a_partition_without_new_records_has_no_range() -> None:
    assert ranges_between(QueryProgress({A0: 5, A1: 5}), QueryProgress({A0: 5, A1: 4}), {}) == []


@settings(max_examples=100)
@given(ranges_strategy, st.none() | st.integers(1, 40), st.none() | st.integers(1, 2000))
def test_a_split_covers_the_same_offsets(
    ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    pieces = split(ranges, min_partitions, max_records)
    assert all(piece.size > 0 for piece in pieces)
    assert max_records is None or all(piece.size <= max_records for piece in pieces)
    joined: list[OffsetRange] = []
    for piece in pieces:
        if joined and joined[-1].partition == piece.partition and joined[-1].end == piece.start:
            joined[-1] = joined[-1]._replace(end=piece.end)
        else:
            joined.append(piece)
    assert joined == ranges


def test_the_largest_ranges_are_split_most() -> None:
    pieces = split([OffsetRange(A0, 0, 900), OffsetRange(A1, 0, 100)], min_partitions=10)
    assert [piece.partition for piece in pieces].count(A0) == 9
    assert len(split([OffsetRange(A0, 0, 2), OffsetRange(A1, 0, 2)], min_partitions=2)) == 2


@settings(max_examples=100)
@given(
    st.lists(st.integers(1, 2 * TASK_OFFSETS) | st.integers(1, 50), max_size=200),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 2000),
)
def test_small_ranges_share_tasks_and_nothing_else_changes(
    sizes: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange(TopicPartition("t", index), 0, size) for index, size in enumerate(sizes)]
    tasks = packed(ranges, min_partitions, max_records)
    assert [each for task in tasks for each in task] == ranges
    assert len(tasks) >= min(len(ranges), max(TASKS_MIN, min_partitions or 0))
    room = min(TASK_OFFSETS, max_records or TASK_OFFSETS)
    assert all(len(task) == 1 or sum(each.size for each in task) <= room for task in tasks)


def test_a_thousand_small_partitions_are_a_few_tasks() -> None:
    ranges = [OffsetRange(TopicPartition("t", index), 0, 100) for index in range(1000)]
    assert TASKS_MIN <= len(packed(ranges)) <= TASKS_MIN + 1
    assert len(packed([each._replace(end=TASK_OFFSETS) for each in ranges])) == 1000


@settings(max_examples=100)
@given(
    st.dictionaries(st.sampled_from([A0, A1, B0]), st.tuples(st.integers(0, 99), st.integers(0, 500))),
    st.integers(1, 1000),
    st.sampled_from([1.0, 3.5, 100.0]),
)
def test_a_limit_is_kept_up_to_one_record_each(
    backlog: dict[TopicPartition, tuple[int, int]], budget: int, size: float
) -> None:
    start = {part: low for part, (low, _) in backlog.items()}
    end = {part: low + more for part, (low, more) in backlog.items()}
    cost = dict.fromkeys(backlog, size)
    moved = limited(start, end, budget, cost)
    assert set(moved) == set(end)
    assert all(start[part] <= moved[part] <= end[part] for part in end)
    assert all(moved[part] > start[part] for part in end if end[part] > start[part])
    spent = sum((moved[part] - start[part]) * size for part in end)
    assert spent <= budget + len(backlog) * size


def test_a_budget_for_everything_moves_nothing() -> None:
    assert limited({A0: 0}, {A0: 15}, 33, {A0: 2.2}) == {A0: 15}, "15 * 2.2 is 33, but rounding would leave out one"


def test_a_micro_batch_waits_until_there_is_enough_or_it_has_waited_enough() -> None:
    assert worth_a_batch(0, None, 0, 1000)
    assert worth_a_batch(1, 10, None, 1000)  # the first one
    assert not worth_a_batch(9, 10, 999, 1000)
    assert worth_a_batch(10, 10, 0, 1000)
    assert worth_a_batch(1, 10, 1000, 1000)


def test_a_range_is_cut_into_no_more_parts_than_it_needs() -> None:
    whole = [OffsetRange(A0, 0, 1_000)]
    assert [piece.size for piece in split(whole, max_records=1_000)] == [1_000]
    assert [piece.size for piece in split(whole, max_records=999)] == [500, 500]
    assert [piece.size for piece in split(whole, min_partitions=4)] == [250] * 4
    assert [piece.size for piece in split(whole, min_partitions=4, max_records=100)] == [100] * 10
    assert [piece.size for piece in split([OffsetRange(A0, 0, 2)], min_partitions=5)] == [1, 1]
