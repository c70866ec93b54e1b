"""Readings of the broker in the form that OpenTelemetry's exporter takes: names, labels and values as on /metrics."""

from collections.abc import Iterable

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Gauge as GaugePoints
from opentelemetry.sdk.metrics.export import Histogram as HistogramPoints
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tidemill.model.metrics import CounterReading, Gauge, HistogramReading, Labels, MetricReading

NO_UNIT = ""
"""The unit is the end of the name. A unit of its own would be added to the name a second time by some collectors."""


class Moment:
    """When the broker has started to count, and now."""

    __slots__ = ("now_ns", "started_ns")

    def __init__(self, started_ns: int, now_ns: int) -> None:
        self.started_ns = started_ns
        self.now_ns = now_ns


def metrics_data(
    readings: Iterable[MetricReading], labels: Labels, moment: Moment, resource: Resource, scope: InstrumentationScope
) -> MetricsData:
    """All readings as one export. `labels` are those of the whole broker."""
    by_name: dict[str, list[MetricReading]] = {}
    for reading in readings:
        by_name.setdefault(reading.name, []).append(reading)
    metrics = [_metric(found, labels, moment) for found in by_name.values()]
    scoped = ScopeMetrics(scope, metrics, "")
    return MetricsData([ResourceMetrics(resource, [scoped], "")])


def _metric(readings: list[MetricReading], labels: Labels, moment: Moment) -> Metric:
    first = readings[0]
    cumulative = AggregationTemporality.CUMULATIVE
    if isinstance(first, HistogramReading):
        points = [_histogram(each, labels, moment) for each in readings if isinstance(each, HistogramReading)]
        return Metric(first.name, first.doc, NO_UNIT, HistogramPoints(points, cumulative))
    numbers = [_number(each, labels, moment) for each in readings if isinstance(each, Gauge | CounterReading)]
    if isinstance(first, CounterReading):
        return Metric(f"{first.name}_total", first.doc, NO_UNIT, Sum(numbers, cumulative, is_monotonic=True))
    return Metric(first.name, first.doc, NO_UNIT, GaugePoints(numbers))


def _number(reading: Gauge | CounterReading, labels: Labels, moment: Moment) -> NumberDataPoint:
    return NumberDataPoint(
        dict((*labels, *reading.labels)), moment.started_ns, moment.now_ns, reading.value, exemplars=()
    )


def _histogram(reading: HistogramReading, labels: Labels, moment: Moment) -> HistogramDataPoint:
    histogram, counts = reading.histogram, tuple(reading.histogram.counts)
    return HistogramDataPoint(
        dict((*labels, *reading.labels)),
        moment.started_ns,
        moment.now_ns,
        sum(counts),
        histogram.total,
        counts,
        histogram.bounds,
        0.0,
        histogram.largest,
        exemplars=(),
    )
