"""Counts the clients of timelines: open streams of consumers, sessions of producers, and what consumers do in a stream.

A stream lives for days and counts as one request at its end. So each operation in it is counted as a request, too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter

from tidemill.broker.metrics import GRPC_CLIENTS, BrokerMetrics
from tidemill.model.errors import TidemillError
from tidemill.model.metrics import CounterReading, Gauge, MetricReading
from tidemill.model.timeline_errors import (
    ConsumerReplaced,
    TimelineDeleting,
    TimelineError,
    TimelineNotReady,
    UnknownSession,
)
from tidemill.servers.grpc.call import SERVER_NAME
from tidemill.timelines.core.lease import Command, CommandOutcome, Complete, Extend, Release, error_of

PRODUCER, CONSUMER = "producer", "consumer"
SERVICE = "TimelineService"
STREAM = f"{SERVICE}/Work"
ACTIONS: tuple[type[Command], ...] = (Complete, Release, Extend)
EXPECTED = (ConsumerReplaced, TimelineDeleting, TimelineNotReady, UnknownSession)
"""After these a client connects again or repeats its handshake, as the protocol demands."""


class ChannelCounts:
    """The clients of the timelines of one broker."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        self.streams = 0
        self._metrics = metrics
        self._failed: Counter[str] = Counter()
        self._operations = {each: metrics.api(SERVER_NAME, f"{STREAM}.{each.__name__}") for each in ACTIONS}

    def settled(self, results: Iterable[tuple[Command, CommandOutcome | TimelineError]], began_s: float) -> None:
        """Count the operations of a batch that was received at `began_s` by `perf_counter`."""
        seconds = perf_counter() - began_s
        outcomes = Counter((type(command), _error_name(result)) for command, result in results)
        for (action, error), count in outcomes.items():
            traffic = self._operations[action]
            traffic.duration.add_equal(seconds, count)
            if error is not None:
                traffic.failed(error, count)

    def rejected(self, method: str, outcomes: Iterable[CommandOutcome]) -> None:
        """Count the errors in the response of a method, which has an outcome for each message."""
        for error, count in Counter(map(_error_name, outcomes)).items():
            if error is not None:
                self._metrics.api(SERVER_NAME, f"{SERVICE}/{method}").failed(error, count)

    def round_trip(self, seconds: float) -> None:
        """Count the round trip of a ping to a consumer, without the time that the consumer took to answer."""
        self._metrics.network(GRPC_CLIENTS).latency.add(seconds)

    @contextmanager
    def consuming(self) -> Iterator[None]:
        """Count the stream of a consumer while it is open."""
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    @contextmanager
    def failures(self, kind: str) -> Iterator[None]:
        """Count the error of a client of this kind if the block ends with one."""
        try:
            yield
        except TidemillError as error:
            if not isinstance(error, EXPECTED):
                self._failed[kind] += 1
            raise

    def readings(self, producers: Callable[[], int]) -> Callable[[], Iterator[MetricReading]]:
        """The metrics of the channels; `producers` counts the sessions that producers use."""

        def read() -> Iterator[MetricReading]:
            for kind, count in ((PRODUCER, producers()), (CONSUMER, self.streams)):
                labels = (("server", SERVER_NAME), ("type", kind))
                yield Gauge(
                    "tidemill_channels",
                    "Kafka connections and gRPC sessions of clients that produce or consume.",
                    count,
                    labels,
                )
                yield CounterReading(
                    "tidemill_channel_errors",
                    "Kafka connections closed for an invalid request or login; gRPC calls of such clients that failed.",
                    self._failed[kind],
                    labels,
                )

        return read


def _error_name(result: CommandOutcome | TimelineError) -> str | None:
    """The class of the error that the consumer gets; None when the operation was done."""
    error = result if isinstance(result, TimelineError) else error_of(result)
    return None if error is None else type(error).__name__
