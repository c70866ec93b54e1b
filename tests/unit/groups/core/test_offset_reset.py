"""Where a reset moves offsets: every target stays within the log."""

from tidemill.groups.core.offset_reset import (
    NO_RECORD,
    ResetPosition,
    Target,
    at_time,
    earliest,
    exact,
    fixed,
    latest,
    plan_reset,
    shifted,
)
from tidemill.model.topics import TopicPartition

READ, NEW = TopicPartition("t", 0), TopicPartition("t", 1)
POSITIONS = {NEW: ResetPosition(None, 10, 20), READ: ResetPosition(15, 10, 20)}


def moved(target: Target) -> list[int]:
    return [move.to for move in plan_reset(POSITIONS, target)]


def test_each_target_moves_each_partition() -> None:
    assert moved(earliest) == [10, 10]
    assert moved(latest) == [20, 20]
    assert moved(shifted(3)) == [18, 13]
    assert moved(shifted(-3)) == [12, 10]
    assert moved(fixed(17)) == [17, 17]
    assert moved(at_time({READ: 12, NEW: NO_RECORD})) == [12, 20]
    assert moved(exact({READ: 11, NEW: 19})) == [11, 19]


def test_targets_outside_of_the_log_become_its_ends() -> None:
    assert moved(fixed(0)) == [10, 10]
    assert moved(fixed(2**62)) == [20, 20]
    assert moved(shifted(-(2**62))) == [10, 10]


def test_a_move_counts_skipped_and_repeated_records() -> None:
    back, new = plan_reset(POSITIONS, earliest)
    assert (back.place, back.previous, back.records) == (READ, 15, -5)
    assert (new.place, new.previous, new.records) == (NEW, None, None)
    assert plan_reset(POSITIONS, latest)[0].records == 5
