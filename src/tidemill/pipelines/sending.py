"""A thread that talks to the broker while its owner makes the next batch.

The client is for one thread: here it is this one, and everything that is asked of it happens in the order in which it
was asked, which idempotent writing needs. Batches that are on their way are not touched again by whoever made them.
Several requests travel at a time: the broker answers each when its records are on the disk.
"""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from tidemill.client.raw import RawClient
from tidemill.model.topics import TopicPartition

REQUESTS_WAITING_MAX = 2
"""How many produce requests may wait behind those that are on their way: a few MB of batches."""

P = ParamSpec("P")
R = TypeVar("R")


class Sender:
    """Sends what one task writes. Leave it before the client is used by anybody else."""

    def __init__(self, client: RawClient, transactional_id: str | None) -> None:
        self._pipe = client.pipe(transactional_id)
        self._thread = ThreadPoolExecutor(1, "tidemill-sink")
        self._waiting: deque[Future[Any]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def call(self, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """What a call of the client gives, after all that was asked before."""
        return self._thread.submit(function, *arguments, **named).result()

    def produce(self, batches: Mapping[TopicPartition, bytearray | memoryview]) -> None:
        """Send batches; an error is raised by a later call, or by `drain`."""
        self._waiting.append(self._thread.submit(self._pipe.send, batches))
        while len(self._waiting) > REQUESTS_WAITING_MAX:
            self._waiting.popleft().result()

    def drain(self) -> None:
        """Wait until the broker has everything."""
        self._waiting.append(self._thread.submit(self._pipe.drain))
        while self._waiting:
            self._waiting.popleft().result()
