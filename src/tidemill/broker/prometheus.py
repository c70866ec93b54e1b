"""Metrics as Prometheus text. The numbers are read when the text is requested, and cost nothing before."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemill.broker.metrics import BrokerMetrics
from tidemill.model.metrics import CounterReading, Gauge, Histogram, HistogramReading, MetricReading
from tidemill.streams.partition import Partition

KINDS = {Gauge: "gauge", CounterReading: "counter", HistogramReading: "histogram"}


class BrokerCollector(Collector):
    """The metrics of one broker."""

    def __init__(self, telemetry: BrokerMetrics, partitions: Iterable[Partition]) -> None:
        self._telemetry = telemetry
        self._partitions = partitions

    def collect(self) -> Iterator[Metric]:
        """Every metric, from the current numbers."""
        yield from self._apis()
        failed = sum(partition.failed is not None for partition in self._partitions)
        yield GaugeMetricFamily("tidemill_partitions_failed", "Partitions whose disk failed.", value=failed)
        yield _labelled(
            GaugeMetricFamily("tidemill_connections", "Open connections.", labels=["server"]),
            self._telemetry.connections,
        )
        yield _labelled(
            CounterMetricFamily("tidemill_connections_opened", "Connections since start.", labels=["server"]),
            self._telemetry.connections_opened,
        )
        yield from self._tasks()
        yield from _families(reading for source in self._telemetry.sources for reading in source())

    def _tasks(self) -> Iterator[Metric]:
        supervisor = self._telemetry.supervisor
        yield _labelled(
            CounterMetricFamily("tidemill_task_restarts", "Restarts of failed background tasks.", labels=["task"]),
            supervisor.restarts,
        )
        yield _labelled(
            CounterMetricFamily("tidemill_job_failures", "Background jobs that failed.", labels=["job"]),
            supervisor.failures,
        )
        yield _labelled(
            GaugeMetricFamily(
                "tidemill_tasks_failing", "Background tasks that fail or wait to restart.", labels=["task"]
            ),
            supervisor.failing(),
        )

    def _apis(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "tidemill_request_duration_seconds", "Time from request to response.", labels=["server", "api"]
        )
        errors = CounterMetricFamily(
            "tidemill_request_errors",
            "Responses with an error. Refusals that a protocol expects are not counted.",
            labels=["server", "api", "error"],
        )
        requests = CounterMetricFamily("tidemill_requests", "Requests.", labels=["server", "api"])
        for labels, traffic in sorted(self._telemetry.apis.items()):
            requests.add_metric(labels, traffic.duration.count)
            seconds.add_metric(labels, _buckets(traffic.duration), traffic.duration.total)
            for error, count in sorted(traffic.errors.items()):
                errors.add_metric([*labels, error], count)
        return iter((requests, seconds, errors))


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(str, histogram.bounds), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


def _labelled(
    family: GaugeMetricFamily | CounterMetricFamily, values: dict[str, int]
) -> GaugeMetricFamily | CounterMetricFamily:
    for label, value in sorted(values.items()):
        family.add_metric([label], value)
    return family


def _families(readings: Iterable[MetricReading]) -> Iterator[Metric]:
    families: dict[str, Metric] = {}
    for reading in readings:
        family = families.get(reading.name)
        if family is None:
            family = families[reading.name] = Metric(reading.name, reading.doc, KINDS[type(reading)])
        _add(family, reading)
    yield from families.values()


def _add(family: Metric, reading: MetricReading) -> None:
    name, labels = reading.name, dict(reading.labels)
    if isinstance(reading, HistogramReading):
        for bound, count in _buckets(reading.histogram):
            family.add_sample(f"{name}_bucket", {**labels, "le": bound}, count)
        family.add_sample(f"{name}_count", labels, reading.histogram.count)
        family.add_sample(f"{name}_sum", labels, reading.histogram.total)
    else:
        family.add_sample(f"{name}_total" if isinstance(reading, CounterReading) else name, labels, reading.value)


def registry_of(telemetry: BrokerMetrics, partitions: Iterable[Partition]) -> CollectorRegistry:
    """A registry per broker, so that several brokers fit in one process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(telemetry, partitions))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


async def exposition(registry: CollectorRegistry, telemetry: BrokerMetrics, *, by_partition: bool) -> bytes:
    """The text that Prometheus reads. A thread formats it, because it can have tens of thousands of lines."""
    snapshots = [await snapshot(by_partition) for snapshot in telemetry.snapshots]
    families = list(registry.collect())
    return await asyncio.to_thread(lambda: render([*families, *_families(chain.from_iterable(snapshots))]))


class _Collected(Collector):
    """Metrics that were collected before."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """The metrics."""
        return self._families


def render(families: Iterable[Metric]) -> bytes:
    """Format metrics as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(families))
    return generate_latest(registry)
