"""The metrics of requests, connections and background tasks."""

from collections.abc import Callable, Iterator, Mapping

from tidemill.broker.metrics import BrokerMetrics
from tidemill.model.metrics import CounterReading, Gauge, HistogramReading, MetricReading


def server_readings(metrics: BrokerMetrics) -> Callable[[], Iterator[MetricReading]]:
    """What the servers of a broker have counted."""

    def read() -> Iterator[MetricReading]:
        yield from _requests(metrics)
        for server, count in _by_name(metrics.connections):
            yield Gauge("tidemill_connections", "Open connections.", count, (("server", server),))
        for server, count in _by_name(metrics.connections_opened):
            yield CounterReading(
                "tidemill_connections_opened", "Connections since start.", count, (("server", server),)
            )
        yield from _tasks(metrics)

    return read


def _requests(metrics: BrokerMetrics) -> Iterator[MetricReading]:
    for (server, api), traffic in sorted(metrics.apis.items()):
        labels = (("server", server), ("api", api))
        yield CounterReading("tidemill_requests", "Requests.", traffic.duration.count, labels)
        yield HistogramReading(
            "tidemill_request_duration_seconds", "Time from request to response.", traffic.duration, labels
        )
        for error, count in _by_name(traffic.errors):
            yield CounterReading(
                "tidemill_request_errors",
                "Responses with an error. Refusals that a protocol expects are not counted.",
                count,
                (("server", server), ("api", api), ("error", error)),
            )


def _tasks(metrics: BrokerMetrics) -> Iterator[MetricReading]:
    supervisor = metrics.supervisor
    for task, count in _by_name(supervisor.restarts):
        yield CounterReading("tidemill_task_restarts", "Restarts of failed background tasks.", count, (("task", task),))
    for job, count in _by_name(supervisor.failures):
        yield CounterReading("tidemill_job_failures", "Background jobs that failed.", count, (("job", job),))
    for task, count in _by_name(supervisor.failing()):
        yield Gauge(
            "tidemill_tasks_failing", "Background tasks that fail or wait to restart.", count, (("task", task),)
        )


def _by_name(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items())
