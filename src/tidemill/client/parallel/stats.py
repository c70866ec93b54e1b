"""The statistics of a parallel consumer: a snapshot for programs, metrics for Prometheus."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot of a parallel consumer."""

    waiting: int
    in_flight: int
    received: int
    completed: int
    beyond_gap: int
    skipped: int
    failures: int
    retries: int
    dead_letters: int
    dropped: int
    handler_s: float
    commits: int
    committed: dict[str, int]
    contiguous: dict[str, int]
    assigned: tuple[str, ...]


_GAUGES = {
    "waiting": "Records that wait for a worker.",
    "in_flight": "Records that are being handled.",
    "beyond_gap": "Records that are complete beyond a gap.",
}
_COUNTERS = {
    "received": "Records received.",
    "completed": "Records complete.",
    "skipped": "Records that were complete before a restart or rebalance.",
    "failures": "Handlers that failed.",
    "retries": "Records tried again.",
    "dead_letters": "Records written to the dead-letter topic.",
    "dropped": "Results that arrived after their partition was lost.",
    "commits": "Commits.",
    "handler_s": "Seconds spent in handlers.",
}
_OFFSETS = {
    "contiguous": "First offset that is not complete.",
    "committed": "Offset that was committed.",
}


class StatsCollector:
    """Turns snapshots into metrics at each scrape, so that there is no cost in between.

    All consumers of a registry share one collector, because a metric name may be registered only once. A consumer
    replaces an earlier one of the same group.
    """

    def __init__(self) -> None:
        self._sources: dict[str, Callable[[], Stats]] = {}

    def add(self, group: str, stats: Callable[[], Stats]) -> None:
        """Add a consumer."""
        self._sources = {**self._sources, group: stats}

    def collect(self) -> Iterator[Any]:
        """The metrics, called by prometheus-client."""
        found = {group: stats() for group, stats in self._sources.items()}
        for name, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"tidemill_parallel_{name}", text, labels=["group"])
            for group, stats in found.items():
                gauge.add_metric([group], getattr(stats, name))
            yield gauge
        for name, text in _COUNTERS.items():
            metric = name.replace("handler_s", "handler_seconds")
            counter = CounterMetricFamily(f"tidemill_parallel_{metric}", text, labels=["group"])
            for group, stats in found.items():
                counter.add_metric([group], getattr(stats, name))
            yield counter
        for name, text in _OFFSETS.items():
            offsets = GaugeMetricFamily(f"tidemill_parallel_{name}_offset", text, labels=["group", "partition"])
            for group, stats in found.items():
                for place, offset in getattr(stats, name).items():
                    offsets.add_metric([group, place], offset)
            yield offsets


_COLLECTORS: "WeakKeyDictionary[CollectorRegistry, StatsCollector]" = WeakKeyDictionary()
_COLLECTORS_LOCK = threading.Lock()


def collector_of(registry: "CollectorRegistry") -> StatsCollector:
    """The registry's collector, registered at the first call."""
    with _COLLECTORS_LOCK:
        found = _COLLECTORS.get(registry)
        if found is None:
            found = _COLLECTORS[registry] = StatsCollector()
            registry.register(found)
        return found
