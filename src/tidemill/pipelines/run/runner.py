"""Runs queries until they end, fail or are stopped, and reports their progress."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

POLL_S = 0.5
Reports = Mapping[str, Sequence[Mapping[str, Any]]]
"""Spark's progress reports on micro-batches, oldest first, by the name of the query."""


class Running(Protocol):
    """Running queries, such as `pipelines.spark.queries.Queries`."""

    def ended(self) -> bool:
        """Whether all queries have ended. Raises if one has failed."""

    def progress(self) -> Reports:
        """The progress of each query since the last call."""

    def stop(self) -> None:
        """Stop all queries."""


def tend(queries: Running, stop: threading.Event, report: Callable[[Reports], None]) -> None:
    """Report until all queries have ended or `stop` is set. All queries are stopped on return."""
    try:
        while not queries.ended() and not stop.is_set():
            report(queries.progress())
            stop.wait(POLL_S)
    finally:
        queries.stop()
    report(queries.progress())


@contextmanager
def orderly() -> Iterator[Callable[[], threading.Event]]:
    """Let Ctrl-C and SIGTERM stop the work inside, without interrupting the stop itself: it takes Spark some seconds.

    This yields a function. Before that function is called, the first signal interrupts, as Ctrl-C usually does. After
    the call, signals only set the event that the function returns. Call it after Spark has started, because Spark
    installs its own Ctrl-C handler.
    """
    stop = threading.Event()
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop_event() -> threading.Event:
        for number in kept:
            signal.signal(number, lambda *_: stop.set())
        return stop

    def interrupt(*_: object) -> None:
        stop_event().set()
        raise KeyboardInterrupt

    for number in kept:
        signal.signal(number, interrupt)
    try:
        yield stop_event
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
