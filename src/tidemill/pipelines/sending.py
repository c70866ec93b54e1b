"""A thread that talks to the broker while its owner makes the next batch.

The client is for one thread: here it is this one, and everything that is asked of it happens in the order in which it
was asked, which idempotent writing needs. Batches that are on their way are not touched again by whoever made them.
Several requests travel at a time: the broker answers each when its records are on the disk.

Batches cross over in a plain queue: the futures of a pool take a quarter of a task's time in Python.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from tidemill.client.kafka import KafkaClient
from tidemill.model.topics import TopicPartition

REQUESTS_WAITING_MAX = 2
"""How many produce requests may wait behind the one that is being sent: a few MB of batches."""

P = ParamSpec("P")
R = TypeVar("R")
Batches = Mapping[TopicPartition, bytearray | memoryview]


class Sender:
    """Sends what one task writes. Leave it before the client is used by anybody else."""

    def __init__(self, client: KafkaClient, transactional_id: str | None) -> None:
        self._pipe = client.pipe(transactional_id)
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(REQUESTS_WAITING_MAX + 1):
            self._room.put(None)
        self._failure: BaseException | None = None
        self._left = False
        self._thread = Thread(target=self._run, name="tidemill-sink", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._left = True
        self._asked.put(None)
        self._thread.join()

    def call(self, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """What a call of the client gives, after all that was asked before."""
        done: Future[R] = Future()
        self._asked.put(partial(_settle, done, partial(function, *arguments, **named)))
        return done.result()

    def produce(self, batches: Batches) -> None:
        """Send batches; an error is raised by a later call, or by `drain`, and nothing is sent after it."""
        self._check()
        self._room.get()
        self._asked.put(partial(self._send, batches))

    def drain(self) -> None:
        """Wait until the broker has everything."""
        self.call(self._drain)

    def _run(self) -> None:
        while (work := self._asked.get()) is not None:
            work()

    def _send(self, batches: Batches) -> None:
        try:
            if self._failure is None and not self._left:
                self._pipe.send(batches)
        except BaseException as error:  # noqa: BLE001 - the owner raises it
            self._failure = error
        finally:
            self._room.put(None)

    def _drain(self) -> None:
        self._check()
        self._pipe.drain()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _settle(done: Future[R], work: Callable[[], R]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whoever waits raises it
        done.set_exception(error)
