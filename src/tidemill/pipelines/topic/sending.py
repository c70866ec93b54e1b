"""Sends batches to the broker in a thread of its own, while the task makes the next batch.

The client may be used by one thread only, and that is this one. It makes calls in the order in which they were queued,
because idempotent producing depends on the order. The task must not touch a batch again after it has queued it. Several
requests are in flight at a time, because the broker answers each only when its records are on disk.

Batches are passed in a plain queue. The futures of an executor would take a quarter of a task's time in Python.
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
"""How many produce requests may wait behind the one being sent: a few MB of batches."""

P = ParamSpec("P")
R = TypeVar("R")
Batches = Mapping[TopicPartition, bytearray | memoryview]


class Sender:
    """Sends the batches of one task. Close it before another object uses the client."""

    def __init__(self, client: KafkaClient, transactional_id: str | None) -> None:
        self._pipe = client.pipe(transactional_id)
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._capacity: SimpleQueue[None] = SimpleQueue()
        for _ in range(REQUESTS_WAITING_MAX + 1):
            self._capacity.put(None)
        self._failure: BaseException | None = None
        self._closed = False
        self._thread = Thread(target=self._run, name="tidemill-sink", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed = True
        self._calls.put(None)
        self._thread.join()

    def call(self, function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """Call the client after everything queued before, and return the result."""
        done: Future[R] = Future()
        self._calls.put(partial(_settle, done, partial(function, *arguments, **named)))
        return done.result()

    def produce(self, batches: Batches) -> None:
        """Queue batches. An error is raised by a later call or by `drain`, and nothing is sent after it."""
        self._check()
        self._capacity.get()
        self._calls.put(partial(self._send, batches))

    def drain(self) -> None:
        """Wait until the broker has acknowledged everything."""
        self.call(self._drain)

    def _run(self) -> None:
        while (work := self._calls.get()) is not None:
            work()

    def _send(self, batches: Batches) -> None:
        try:
            if self._failure is None and not self._closed:
                self._pipe.send(batches)
        except BaseException as error:  # noqa: BLE001 - `_check` raises it in the task's thread
            self._failure = error
        finally:
            self._capacity.put(None)

    def _drain(self) -> None:
        self._check()
        self._pipe.drain()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _settle(done: Future[R], work: Callable[[], R]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
        done.set_exception(error)
