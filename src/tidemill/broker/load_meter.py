"""Measures the load of this broker, once a second: requests, the event loop, the processor, the disk, its clients.

Everything is the change of a counter that the broker has for its metrics anyway. `app/` adds what only the process
knows (`ProcessUsage`).
"""

from collections.abc import Callable
from typing import NamedTuple

from tidemill.broker.metrics import GRPC_CLIENTS, BrokerMetrics
from tidemill.cluster.core.broker_load import LoadSample
from tidemill.model.metrics import Histogram

GRPC = "grpc"
LONG_CALLS = frozenset({"TimelineService/Work", "BrokerService/Poll", "BrokerService/Consume"})
"""Calls that wait for messages: they do not mean that the broker has work to do."""
KAFKA_SERVER = "kafka"


class ProcessUsage(NamedTuple):
    """What the process has counted since its start."""

    cpu_s: float = 0.0
    loop_delay: Histogram = Histogram()
    flushes: Histogram = Histogram()
    disk_used: float = 0.0
    """The share of the disk that is in use now."""


class _Mean:
    """The mean of what was added to a histogram between two looks; the last one when nothing was."""

    def __init__(self) -> None:
        self._total = 0.0
        self._count = 0
        self._is_first = True

    def since_last_ms(self, histogram: Histogram) -> float:
        total, count = histogram.total - self._total, histogram.count - self._count
        is_first, self._is_first = self._is_first, False
        self._total, self._count = histogram.total, histogram.count
        return 0.0 if is_first or count <= 0 else 1_000 * total / count


class LoadMeter:
    """Takes samples from the counters of one broker."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        self.usage: Callable[[], ProcessUsage] = ProcessUsage
        """Set by the process around the broker."""
        self._metrics = metrics
        self._requests: int | None = None
        self._cpu_s: float | None = None
        self._delay, self._flush, self._clients = _Mean(), _Mean(), _Mean()

    def sample(self, elapsed_s: float) -> LoadSample:
        """What was measured since the last call, which was so long ago."""
        usage, seconds = self.usage(), max(0.001, elapsed_s)
        requests = sum(traffic.duration.count for traffic in self._metrics.apis.values())
        before, self._requests = self._requests, requests
        cpu_before_s, self._cpu_s = self._cpu_s, usage.cpu_s
        return LoadSample(
            requests_per_s=0.0 if before is None else max(0, requests - before) / seconds,
            queue=float(self._queue()),
            loop_delay_ms=self._delay.since_last_ms(usage.loop_delay),
            cpu_cores=0.0 if cpu_before_s is None else max(0.0, usage.cpu_s - cpu_before_s) / seconds,
            flush_ms=self._flush.since_last_ms(usage.flushes),
            disk_used=usage.disk_used,
            clients_ms=self._clients.since_last_ms(self._metrics.network(GRPC_CLIENTS).latency),
        )

    def _queue(self) -> int:
        """The requests that are being served, without those that wait for messages."""
        metrics = self._metrics
        others = sum(read() for server, read in metrics.in_flight.items() if server != GRPC)
        calls = sum(
            traffic.in_flight
            for (server, name), traffic in metrics.apis.items()
            if server == GRPC and name not in LONG_CALLS
        )
        return max(0, others + calls - metrics.fetches_waiting)
