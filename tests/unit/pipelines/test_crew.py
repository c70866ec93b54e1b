"""Several clients at work side by side: what they give, and how they stop."""

from threading import Lock
from typing import Any, Self

import pytest

from tidemill.pipelines.client_pool import CLIENTS_MAX, SHARE_MIN, Crew

MANY = CLIENTS_MAX * SHARE_MIN


class Client:
    def __init__(self) -> None:
        self.hired: list[Client] = []
        self.done: list[int] = []
        self.closed = False

    def another(self) -> "Client":
        self.hired.append(Client())
        return self.hired[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


def twice(client: Any, item: int) -> int:
    client.done.append(item)
    return 2 * item


def test_many_are_shared_and_come_back_in_their_order() -> None:
    client = Client()
    with Crew(client) as crew:  # type: ignore[arg-type]
        assert crew.each(twice, range(MANY)) == [2 * item for item in range(MANY)]
        assert crew.each(twice, range(MANY)) == [2 * item for item in range(MANY)]
    assert len(client.hired) == CLIENTS_MAX - 1
    assert all(each.closed and len(each.done) == 2 * SHARE_MIN for each in client.hired)
    assert not client.closed


def test_for_few_nobody_is_hired() -> None:
    client = Client()
    with Crew(client) as crew:  # type: ignore[arg-type]
        assert crew.each(twice, range(2 * SHARE_MIN - 1)) == [2 * item for item in range(2 * SHARE_MIN - 1)]
        assert crew.each(twice, []) == []
    assert not client.hired


def test_a_failure_is_told_when_all_have_stopped() -> None:
    lock = Lock()
    at_work = 0

    def fail_soon(_: Any, item: int) -> None:
        nonlocal at_work
        with lock:
            at_work += 1
        try:
            if item == SHARE_MIN:
                raise ValueError(item)
        finally:
            with lock:
                at_work -= 1

    with Crew(Client()) as crew, pytest.raises(ValueError, match=str(SHARE_MIN)):  # type: ignore[arg-type]
        crew.each(fail_soon, range(MANY))
    assert at_work == 0
