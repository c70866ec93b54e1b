"""A pool of clients for many requests of the same kind. A coordinator's response takes milliseconds, mostly waiting.

The pool raises a failure only after all its threads have stopped, so that none works on in the background.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from types import TracebackType
from typing import Self, TypeVar

from tidemill.client.kafka import KafkaClient

CLIENTS_MAX = 4
"""A broker of one process is fully busy at this number. Brokers with more cores could serve a few more."""
SHARE_MIN = 8
"""For fewer requests, another connection costs more than it saves, because it starts with a handshake."""

T = TypeVar("T")
R = TypeVar("R")


class ClientPool:
    """A client and, while there are many requests, some copies of it."""

    def __init__(self, client: KafkaClient) -> None:
        self.client = client
        self._clients = [client]
        self._extra_clients = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._extra_clients.close()

    def each(self, work: Callable[[KafkaClient, T], R], items: Iterable[T]) -> list[R]:
        """The results of the work for each item, in order.

        The first failure is raised after all threads have stopped.
        """
        left = list(items)
        count = max(1, min(CLIENTS_MAX, len(left) // SHARE_MIN))
        while len(self._clients) < count:
            self._clients.append(self._extra_clients.enter_context(self.client.another()))
        if count == 1:
            return [work(self.client, item) for item in left]
        found: dict[int, R] = {}
        failed = Event()

        def share(index: int) -> None:
            for place in range(index, len(left), count):
                if failed.is_set():
                    return
                try:
                    found[place] = work(self._clients[index], left[place])
                except BaseException:
                    failed.set()
                    raise

        with ThreadPoolExecutor(count, "tidemill-client-pool") as pool:
            shares = [pool.submit(share, index) for index in range(count)]
        for each in shares:
            each.result()
        return [found[place] for place in range(len(left))]
