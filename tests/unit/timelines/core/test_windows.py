"""Windows: when a deal changes, and which consumers work until then."""

from tidemill.timelines.core.dealer import DealtConsumer
from tidemill.timelines.core.timeline import DealerKind
from tidemill.timelines.core.windows import Windows

A, B, C = DealtConsumer("a1", "a"), DealtConsumer("b1", "b"), DealtConsumer("c1", "a")


def everyone(windows: Windows) -> set[str]:
    return {name for bucket in range(64) for name in windows.candidates(bucket)}


def test_windows_are_aligned_to_the_clock() -> None:
    windows = Windows(1000, buckets=64)
    assert not windows.turn(2_345)
    assert windows.ends_ms == 3_000
    assert windows.turn(2_999) is False
    windows.turn(3_000)
    assert windows.ends_ms == 4_000


def test_the_first_consumer_starts_at_once_and_the_next_one_in_the_next_window() -> None:
    windows = Windows(1000, buckets=64)
    assert windows.candidates(5) == ()
    windows.join(A, 100)
    assert windows.candidates(5) == ("a1",)
    windows.join(B, 200)
    assert everyone(windows) == {"a1"}
    assert windows.turn(1000)
    assert everyone(windows) == {"a1", "b1"}
    assert not windows.turn(2000)


def test_the_next_deal_is_prepared_in_this_window() -> None:
    windows = Windows(1000, buckets=64)
    windows.join(A, 0)
    windows.join(B, 1)
    prepared = windows.prepare()
    assert prepared is not windows.deal
    windows.turn(1000)
    assert windows.deal is prepared


def test_a_lost_consumers_backups_take_over_at_once() -> None:
    windows = Windows(1000, buckets=64)
    for member in (A, B, C):
        windows.join(member, 0)
    windows.turn(1000)
    orphans = [bucket for bucket in range(64) if windows.candidates(bucket)[0] == "b1"]
    windows.leave("b1", 1100)
    assert orphans
    assert all(windows.candidates(bucket)[0] in {"a1", "c1"} for bucket in orphans)
    assert windows.turn(2000)
    assert {windows.candidates(bucket)[0] for bucket in range(64)} == {"a1", "c1"}


def test_without_a_backup_the_messages_wait_for_the_next_window() -> None:
    windows = Windows(1000, buckets=64, dealer=DealerKind.RANGES)
    windows.join(A, 0)
    windows.join(B, 1)
    windows.turn(1000)
    windows.leave("b1", 1100)
    assert windows.candidates(63) == ()
    windows.turn(2000)
    assert windows.candidates(63) == ("a1",)


def test_waiting_workers_start_at_once_when_the_last_worker_leaves() -> None:
    windows = Windows(1000, buckets=64)
    windows.join(A, 0)
    windows.join(B, 1)
    windows.leave("a1", 2)
    assert everyone(windows) == {"b1"}
    windows.leave("b1", 3)
    assert everyone(windows) == set()
    windows.leave("b1", 4)


def test_a_consumer_that_comes_back_in_the_same_window_waits_for_the_next() -> None:
    windows = Windows(1000, buckets=64)
    windows.join(A, 0)
    windows.join(B, 1)
    windows.turn(1000)
    windows.leave("b1", 1001)
    windows.join(B, 1002)
    assert everyone(windows) == {"a1"}
    windows.turn(2000)
    assert everyone(windows) == {"a1", "b1"}


def test_the_first_window_may_begin_at_zero() -> None:
    windows = Windows(1000, buckets=64)
    windows.turn(0)
    assert windows.ends_ms == 1_000
