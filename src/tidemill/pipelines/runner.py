"""Runs queries until they end, fail, or somebody says stop; tells how they get on."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

POLL_S = 0.5
Reports = Mapping[str, Sequence[Mapping[str, Any]]]
"""By the name of the query, what Spark says about its micro-batches, oldest first."""


class Running(Protocol):
    """Queries that run; `pipelines.spark.queries.Queries` are some."""

    def ended(self) -> bool:
        """True when all have ended; raises when one has failed."""

    def progress(self) -> Reports:
        """What each has reported since it was asked last."""

    def stop(self) -> None:
        """Stop them."""


def tend(queries: Running, stop: threading.Event, report: Callable[[Reports], None]) -> None:
    """Report until all have ended or `stop` is set; they are stopped when this returns."""
    try:
        while not queries.ended() and not stop.is_set():
            report(queries.progress())
            stop.wait(POLL_S)
    finally:
        queries.stop()
    report(queries.progress())


@contextmanager
def orderly() -> Iterator[Callable[[], threading.Event]]:
    """Ctrl-C and SIGTERM end what runs in here, and never cut that end short: it takes Spark some seconds.

    Until the function that this gives is called, the first of them interrupts, as Ctrl-C does anywhere; from then on
    they only set the event that it returns. It is called behind the start of Spark, which takes Ctrl-C for itself.
    """
    stop = threading.Event()
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def heed() -> threading.Event:
        for number in kept:
            signal.signal(number, lambda *_: stop.set())
        return stop

    def interrupt(*_: object) -> None:
        heed().set()
        raise KeyboardInterrupt

    for number in kept:
        signal.signal(number, interrupt)
    try:
        yield heed
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
