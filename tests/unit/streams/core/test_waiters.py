"""The callables that wait for a partition."""

import pytest

from tidemill.streams.core import waiters
from tidemill.streams.core.waiters import Waiters


def test_a_waiter_is_called_until_it_leaves() -> None:
    waiting = Waiters()
    called: list[str] = []
    leave_a = waiting.add(lambda: called.append("a"))
    waiting.add(lambda: called.append("b"))
    waiting.wake()
    leave_a()
    leave_a()
    waiting.wake()
    assert called == ["a", "b", "b"]
    assert len(waiting) == 1


def test_the_number_of_waiters_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "WAITERS_MAX", 2)
    waiting = Waiters()
    leave = waiting.add(lambda: None)
    waiting.add(lambda: None)
    with pytest.raises(OverflowError, match="more than 2 readers"):
        waiting.add(lambda: None)
    leave()
    waiting.add(lambda: None)


def test_a_waiter_may_leave_while_it_is_called() -> None:
    waiting = Waiters()
    called: list[str] = []

    def leave() -> None:
        called.append("a")
        ended()

    ended = waiting.add(leave)
    waiting.add(lambda: called.append("b"))
    waiting.wake()
    waiting.wake()
    assert called == ["a", "b", "b"]
