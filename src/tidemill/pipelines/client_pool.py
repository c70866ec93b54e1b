"""Several clients that do the same for many: a request of a coordinator takes milliseconds, most of them waiting.

Whoever calls it hears of a failure when all have stopped: nobody is at work behind its back.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from types import TracebackType
from typing import Self, TypeVar

from tidemill.client.kafka import KafkaClient

CLIENTS_MAX = 4
"""Where a broker of one process is busy all the time; brokers with more cores would have use for a few more."""
SHARE_MIN = 8
"""For fewer requests another connection, which has to introduce itself, is not worth it."""

T = TypeVar("T")
R = TypeVar("R")


class Crew:
    """A client and, while there is much to do, some more like it."""

    def __init__(self, client: KafkaClient) -> None:
        self.client = client
        self._clients = [client]
        self._hired = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._hired.close()

    def each(self, work: Callable[[KafkaClient, T], R], items: Iterable[T]) -> list[R]:
        """What the work gives for each item, in their order; the first failure, when everybody has stopped."""
        left = list(items)
        count = max(1, min(CLIENTS_MAX, len(left) // SHARE_MIN))
        while len(self._clients) < count:
            self._clients.append(self._hired.enter_context(self.client.another()))
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

        with ThreadPoolExecutor(count, "tidemill-crew") as pool:
            shares = [pool.submit(share, index) for index in range(count)]
        for each in shares:
            each.result()
        return [found[place] for place in range(len(left))]
