"""The bounded memory of the near future."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.timelines.core.message import TimedMessage, TimelinePosition
from tidemill.timelines.prefetch import Prefetch


def _message(seq: int, due_ms: int, *, version: int = 1, size: int = 10, attempts: int = 0) -> TimedMessage:
    return TimedMessage(seq, f"m{seq}", due_ms, due_ms, 0, "", None, 0, version, attempts, size, None, b"x")


def test_ripe_messages_come_out_in_order_and_a_little_early() -> None:
    prefetch = Prefetch(early_ms=20)
    for seq, due_ms in enumerate((300, 100, 200)):
        prefetch.add(_message(seq, due_ms))
    assert prefetch.wake_ms() == 80
    assert [one.due_ms for one in prefetch.pop_ripe(180, 10)] == [100, 200]
    assert len(prefetch) == 1
    assert prefetch.size_bytes == 10


def test_a_message_that_was_leased_before_is_not_taken_early() -> None:
    prefetch = Prefetch(early_ms=20)
    prefetch.add(_message(1, 100, attempts=1))
    assert prefetch.wake_ms() == 100
    assert not list(prefetch.pop_ripe(99, 10))


def test_messages_that_are_ripe_early_gather_for_a_while() -> None:
    prefetch = Prefetch(early_ms=50, gather_ms=20)
    prefetch.add(_message(1, 100))
    assert prefetch.wake_ms() == 70
    prefetch.add(_message(2, 40, attempts=1))
    assert prefetch.wake_ms() == 40


def test_only_the_newest_state_of_a_message_counts() -> None:
    prefetch = Prefetch(early_ms=0)
    prefetch.add(_message(1, 100))
    prefetch.add(_message(1, 500, version=2))
    prefetch.add(_message(1, 200, version=1))
    assert prefetch.wake_ms() == 500
    assert [one.version for one in prefetch.pop_ripe(1_000, 10)] == [2]
    assert prefetch.wake_ms() is None


def test_messages_beyond_the_limit_are_dropped_and_the_frontier_moves_back() -> None:
    prefetch = Prefetch(early_ms=0, messages_max=10)
    prefetch.frontier = TimelinePosition(10_000, 0)
    for seq in range(21):
        prefetch.add(_message(seq, 1_000 - seq))
    assert len(prefetch) == 10
    assert prefetch.frontier == TimelinePosition(990, 9)
    assert not prefetch.covers(991)
    assert prefetch.covers(989)
    assert prefetch.free_messages() == 0


def test_bytes_are_bounded_and_one_large_message_always_fits() -> None:
    prefetch = Prefetch(early_ms=0, bytes_max=100)
    prefetch.add(_message(1, 5, size=1_000))
    assert len(prefetch) == 1
    assert prefetch.free_messages() == prefetch.free_bytes() == 0
    prefetch.add(_message(2, 6, size=1_000))
    assert [one.seq for one in prefetch.pop_ripe(10, 10)] == [1]
    assert prefetch.frontier == TimelinePosition(6, 1)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 200), st.integers(1, 4), st.integers(0, 50)), max_size=200),
    st.integers(1, 20),
)
@settings(max_examples=100, deadline=None)
def test_counts_stay_true_and_nothing_before_the_frontier_is_lost(
    steps: list[tuple[int, int, int, int]], messages_max: int
) -> None:
    prefetch = Prefetch(early_ms=0, messages_max=messages_max, bytes_max=300)
    prefetch.frontier = TimelinePosition(1_000, 0)
    newest: dict[int, TimedMessage] = {}
    for seq, due_ms, version, size in steps:
        message = _message(seq, due_ms, version=version, size=size)
        if seq not in newest or newest[seq].version < version:
            newest[seq] = message
        prefetch.add(message)
        assert len(prefetch) <= 2 * messages_max
    frontier = prefetch.frontier
    popped = list(prefetch.pop_ripe(10_000, 10_000))
    assert prefetch.size_bytes == len(prefetch) == 0
    assert popped == sorted(popped, key=lambda one: (one.due_ms, one.seq))
    assert {one.seq for one in newest.values() if (one.due_ms, one.seq) <= frontier} <= {one.seq for one in popped}


def test_clearing_starts_another_generation() -> None:
    prefetch = Prefetch(early_ms=0)
    prefetch.add(_message(1, 1))
    before = prefetch.generation
    prefetch.clear()
    assert prefetch.generation > before
    assert prefetch.wake_ms() is None


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_no_more_come_out_than_are_wanted(limit: int) -> None:
    prefetch = Prefetch(early_ms=0)
    for seq in range(5):
        prefetch.add(_message(seq, 1))
    assert len(list(prefetch.pop_ripe(1, limit))) == limit
