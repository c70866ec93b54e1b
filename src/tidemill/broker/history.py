"""The last half hour of this broker: rates, latencies and other numbers, sampled every few seconds for the console.

A part of the broker adds its series with `BrokerHistory.add`. Series have bounded keys, such as topics. A series with
keys keeps only values above zero; a slot in which this broker has sampled counts as zero for the others.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from tidemill.broker.metrics import BrokerMetrics
from tidemill.broker.sample_ring import SampleRing
from tidemill.model.metrics import Histogram
from tidemill.security.core.resources import ResourceType
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.stats import LEASED

SAMPLE_MS = 5_000
MARGIN_MS = 20
"""Samples are taken this long after the beginning of a slot, because a timer may fire a little early."""
SLOTS = 360
"""Half an hour."""
TOPICS_SHOWN_MAX = 200
"""The most topics that have rates of their own: those with the most recent traffic."""
SAMPLED = "sampled"
"""The series of the times at which this broker has sampled."""
KAFKA = "kafka"

Readings = Mapping[str, Mapping[str, float]]
"""Values by series and key. The key of a series without keys is empty."""


class HistorySeries(NamedTuple):
    """One series."""

    name: str
    keys_max: int = 1
    is_sum: bool = True
    """Whether the value of the cluster is the sum over its brokers; otherwise it is the largest."""
    resource: ResourceType | None = None
    """What the keys name, for series with keys: a client sees those that it may describe."""


class HistorySource(NamedTuple):
    """Some series, and the function that reads their values. It gets the seconds since it was called before."""

    series: Sequence[HistorySeries]
    read: Callable[[float], Readings]


class HistoryWindow(NamedTuple):
    """The values of some slots, oldest first."""

    last_slot: int
    values: Mapping[str, Mapping[str, list[float | None]]]
    """By series and key."""


class BrokerHistory:
    """The history of one broker. `clock_ms` gives the slots, `steady_ms` the time between samples."""

    def __init__(self, clock_ms: Callable[[], int], steady_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._steady_ms = steady_ms
        self._sources: list[HistorySource] = []
        self._series: dict[str, HistorySeries] = {}
        self._rings: dict[str, SampleRing] = {SAMPLED: SampleRing(SLOTS)}
        self._began_ms = self._sampled_ms = steady_ms()

    def add(self, source: HistorySource) -> None:
        """Sample some more series."""
        for each in source.series:
            self._series[each.name] = each
            self._rings[each.name] = SampleRing(SLOTS, each.keys_max)
        self._sources.append(source)
        source.read(SAMPLE_MS / 1000)  # what was counted before is no rate

    @property
    def last_slot(self) -> int:
        """The slot of the current time. Brokers sample it a moment after it has begun."""
        return self._clock_ms() // SAMPLE_MS

    def uptime_s(self) -> float:
        """The time since this broker was made."""
        return (self._steady_ms() - self._began_ms) / 1000

    def series(self, name: str) -> HistorySeries | None:
        """A series, by its name."""
        return self._series.get(name)

    async def run(self) -> None:
        """Sample at the beginning of each slot until cancelled."""
        while True:
            await asyncio.sleep((SAMPLE_MS - (self._clock_ms() - MARGIN_MS) % SAMPLE_MS) / 1000)
            self.sample()

    def sample(self) -> None:
        """Read all series now."""
        now_ms, slot = self._steady_ms(), self._clock_ms() // SAMPLE_MS
        elapsed_s = max(1, now_ms - self._sampled_ms) / 1000
        self._sampled_ms = now_ms
        self._rings[SAMPLED].put(slot, {"": 1.0})
        for source in self._sources:
            for name, values in source.read(elapsed_s).items():
                has_keys = self._series[name].keys_max > 1
                self._rings[name].put(slot, {key: each for key, each in values.items() if each or not has_keys})
                self._rings[name].forget(slot - SLOTS)

    def window(
        self, names: Sequence[str], slots: int, *, last_slot: int | None = None, keys: Sequence[str] | None = None
    ) -> HistoryWindow:
        """The slots of some series up to a slot, with all their keys or some of them. Unknown series are left out.

        A key without values counts as zero. In a series with as many keys as it can have, its values are not known.
        """
        last_slot = self.last_slot if last_slot is None else last_slot
        sampled = self._rings[SAMPLED].values("", last_slot, slots)
        found: dict[str, dict[str, list[float | None]]] = {}
        for name in names:
            ring, series = self._rings.get(name), self._series.get(name)
            if ring is None or series is None:
                continue
            wanted = ring.keys if keys is None or series.keys_max == 1 else keys
            found[name] = {key: ring.values(key, last_slot, slots) for key in wanted}
            if series.keys_max > 1:
                known = set(ring.keys)
                for key, values in found[name].items():
                    if key in known or len(known) < series.keys_max:
                        values[:] = [
                            0.0 if each is None and at else each for each, at in zip(values, sampled, strict=True)
                        ]
        return HistoryWindow(last_slot, found)


def traffic_source(metrics: BrokerMetrics) -> HistorySource:
    """Records and bytes per second, of all topics together and of each one."""
    names = ("records_in", "bytes_in", "bytes_out")
    before: dict[str, tuple[int, int, int]] = {}

    def read(elapsed_s: float) -> Readings:
        topics: dict[str, dict[str, float]] = {name: {} for name in names}
        totals = dict.fromkeys(names, 0.0)
        for topic, traffic in metrics.topics.items():
            now = traffic.records_in, traffic.bytes_in, traffic.bytes_out
            known = before.get(topic, (0, 0, 0))
            if now == known:
                continue
            before[topic] = now
            for name, count, counted in zip(names, now, known, strict=True):
                # A topic that was deleted and created again counts from zero.
                rate = (count - counted if count >= counted else count) / elapsed_s
                topics[name][topic] = rate
                totals[name] += rate
        if len(before) > len(metrics.topics):
            for topic in before.keys() - metrics.topics.keys():
                del before[topic]
        return {
            **{name: {"": total} for name, total in totals.items()},
            **{f"topic_{name}": topics[name] for name in names},
        }

    series = [HistorySeries(name) for name in names]
    by_topic = [
        HistorySeries(f"topic_{name}", keys_max=TOPICS_SHOWN_MAX, resource=ResourceType.TOPIC) for name in names
    ]
    return HistorySource((*series, *by_topic), read)


def request_source(metrics: BrokerMetrics) -> HistorySource:
    """Requests and errors per second of all servers, open connections, and the latency of produce and fetch."""
    counted = {"requests": 0, "errors": 0}
    latencies = {name: LatencyChange() for name in ("Produce", "Fetch")}

    def read(elapsed_s: float) -> Readings:
        now = {
            "requests": sum(traffic.duration.count for traffic in metrics.apis.values()),
            "errors": sum(sum(traffic.errors.values()) for traffic in metrics.apis.values()),
        }
        rates = {name: {"": max(0, count - counted[name]) / elapsed_s} for name, count in now.items()}
        counted.update(now)
        found: dict[str, dict[str, float]] = {**rates, "connections": {"": float(sum(metrics.connections.values()))}}
        for api, change in latencies.items():
            traffic = metrics.apis.get((KAFKA, api))
            quantiles = None if traffic is None else change.quantiles(traffic.duration)
            if quantiles is not None:
                found[f"{api.lower()}_p50_s"], found[f"{api.lower()}_p99_s"] = {"": quantiles[0]}, {"": quantiles[1]}
        return found

    sums = [HistorySeries(name) for name in ("requests", "errors", "connections")]
    largest = ("produce_p50_s", "produce_p99_s", "fetch_p50_s", "fetch_p99_s")
    return HistorySource((*sums, *(HistorySeries(name, is_sum=False) for name in largest)), read)


def delivery_source(timelines: Dispatcher) -> HistorySource:
    """Messages of timelines that were delivered, per second."""
    counted = 0

    def read(elapsed_s: float) -> Readings:
        nonlocal counted
        stats = (timelines.stats.get(name) for name in timelines.stats.names())
        now = sum(each.leases[LEASED] for each in stats if each is not None)
        rate = max(0, now - counted) / elapsed_s
        counted = now
        return {"deliveries": {"": rate}}

    return HistorySource((HistorySeries("deliveries"),), read)


class LatencyChange:
    """The latencies between two looks at a histogram that only grows."""

    def __init__(self) -> None:
        self._counts: list[int] = []

    def quantiles(self, histogram: Histogram) -> tuple[float, float] | None:
        """The median and the 99th percentile of what was added since the last call; None if nothing was."""
        before = self._counts or [0] * len(histogram.counts)
        self._counts = list(histogram.counts)
        added = [now - then for now, then in zip(self._counts, before, strict=True)]
        if sum(added) <= 0:
            return None
        return quantile(added, histogram.bounds, 0.5), quantile(added, histogram.bounds, 0.99)


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float:
    """A quantile of counts between bounds, interpolated. Beyond the last bound it is the last bound."""
    wanted = share * sum(counts)
    sums = list(accumulate(counts))
    at = next(number for number, total in enumerate(sums) if total >= wanted)
    if at == len(bounds):
        return bounds[-1]
    lower = bounds[at - 1] if at else 0.0
    below = sums[at - 1] if at else 0
    return lower + (bounds[at] - lower) * (wanted - below) / counts[at]
