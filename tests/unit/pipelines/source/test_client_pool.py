"""ClientPool: the results of several clients, and how they stop after a failure."""

from threading import Lock
from typing import Any, Self

import pytest

from tidemill.pipelines.source.client_pool import CLIENTS_MAX, SHARE_MIN, ClientPool

MANY = CLIENTS_MAX * SHARE_MIN


class Client:
    def __init__(self) -> None:
        self.copies: list[Client] = []
        self.done: list[int] = []
        self.closed = False

    def another(self) -> "Client":
        self.copies.append(Client())
        return self.copies[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


def twice(client: Any, item: int) -> int:
    client.done.append(item)
    return 2 * item


def test_many_items_are_shared_and_results_keep_their_order() -> None:
    client = Client()
    with ClientPool(client) as pool:  # type: ignore[arg-type]
        assert pool.each(twice, range(MANY)) == [2 * item for item in range(MANY)]
        assert pool.each(twice, range(MANY)) == [2 * item for item in range(MANY)]
    assert len(client.copies) == CLIENTS_MAX - 1
    assert all(each.closed and len(each.done) == 2 * SHARE_MIN for each in client.copies)
    assert not client.closed


def test_few_items_use_one_client() -> None:
    client = Client()
    with ClientPool(client) as pool:  # type: ignore[arg-type]
        assert pool.each(twice, range(2 * SHARE_MIN - 1)) == [2 * item for item in range(2 * SHARE_MIN - 1)]
        assert pool.each(twice, []) == []
    assert not client.copies


def test_a_failure_is_raised_after_all_threads_have_stopped() -> None:
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

    with ClientPool(Client()) as pool, pytest.raises(ValueError, match=str(SHARE_MIN)):  # type: ignore[arg-type]
        pool.each(fail_soon, range(MANY))
    assert at_work == 0
