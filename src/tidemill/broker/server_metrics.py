"""The metrics of requests, connections and background tasks."""

from collections.abc import Callable, Iterator, Mapping

from tidemill.broker.metrics import BrokerMetrics
from tidemill.model.metrics import CounterReading, Gauge, Histogram, HistogramReading, MetricReading


def server_readings(metrics: BrokerMetrics) -> Callable[[], Iterator[MetricReading]]:
    """What the servers of a broker have counted."""

    def read() -> Iterator[MetricReading]:
        yield from _requests(metrics)
        for server, count in _by_name(metrics.connections):
            yield Gauge("tidemill_connections", "Open connections.", count, (("server", server),))
        for server, count in _by_name(metrics.connections_opened):
            yield CounterReading(
                "tidemill_connections_opened",
                "Connections since start, of the Kafka and HTTP servers.",
                count,
                (("server", server),),
            )
        for server, in_flight in sorted(metrics.in_flight.items()):
            yield Gauge(
                "tidemill_requests_in_flight",
                "Requests that are being served. Fetches that wait for records are among them.",
                in_flight(),
                (("server", server),),
            )
        yield Gauge(
            "tidemill_fetches_waiting",
            "Fetch requests of Kafka clients and followers that wait for records.",
            metrics.fetches_waiting,
        )
        yield from _networks(metrics)
        yield from _tasks(metrics)

    return read


def _networks(metrics: BrokerMetrics) -> Iterator[MetricReading]:
    for partner, traffic in sorted(metrics.networks.items()):
        yield from network_readings(partner, traffic.bytes_in, traffic.bytes_out, traffic.latency)


def network_readings(partner: str, bytes_in: int, bytes_out: int, latency: Histogram) -> Iterator[MetricReading]:
    """What is exchanged with one kind of partner."""
    for direction, count in (("in", bytes_in), ("out", bytes_out)):
        yield CounterReading(
            "tidemill_network_bytes",
            "Bytes of requests and responses, without the framing of TLS and HTTP/2; all bytes of databases.",
            count,
            (("partner", partner), ("direction", direction)),
        )
    yield HistogramReading(
        "tidemill_network_latency_seconds",
        "Round trips: of TCP to Kafka and HTTP clients, pings to consumers, requests to other servers.",
        latency,
        (("partner", partner),),
    )


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
    failing = supervisor.failing()
    # From the start with 0: Prometheus does not see the increase of a series that begins with 1.
    for task, count in _by_name({**dict.fromkeys(failing, 0), **supervisor.restarts}):
        yield CounterReading("tidemill_task_restarts", "Restarts of failed background tasks.", count, (("task", task),))
    for job, count in _by_name(supervisor.failures):
        yield CounterReading("tidemill_job_failures", "Background jobs that failed.", count, (("job", job),))
    for task, count in _by_name(failing):
        yield Gauge(
            "tidemill_tasks_failing", "Background tasks that fail or wait to restart.", count, (("task", task),)
        )


def _by_name(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items())
