"""A collector of OpenTelemetry data: an HTTP server that keeps the spans and metrics which it receives."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

TRACES, METRICS = "/v1/traces", "/v1/metrics"
HANG_S = 120


class ReceivedSpan(NamedTuple):
    """A span, with the attributes of its broker."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    error: str


def _values(pairs: "Any") -> dict[str, Any]:
    def value_of(pair: KeyValue) -> Any:
        return getattr(pair.value, str(pair.value.WhichOneof("value")))

    return {pair.key: value_of(pair) for pair in pairs}


class OtlpCollector:
    """What was received. `mode` is how requests are answered: accept, refuse, or hang."""

    def __init__(self) -> None:
        self.mode = "accept"
        self.spans: list[ReceivedSpan] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.requests: list[str] = []
        self.released = threading.Event()
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        """Keep one request."""
        if path == METRICS:
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        elif path == TRACES:
            self.spans += _spans(ExportTraceServiceRequest.FromString(body))

    def spans_of(self, trace_id: str) -> list[ReceivedSpan]:
        """The spans of one trace."""
        return [span for span in self.spans if span.trace_id == trace_id]

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """The labels and the values of a metric in the newest export."""
        found = []
        for resource in self.metrics[-1].resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == name:
                        data = getattr(metric, str(metric.WhichOneof("data")))
                        found += [(_values(point.attributes), point) for point in data.data_points]
        return found

    def names(self) -> set[str]:
        """The metrics of the newest export."""
        return {
            metric.name
            for resource in self.metrics[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def _spans(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    for each in request.resource_spans:
        resource = _values(each.resource.attributes)
        for scope in each.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    span.name,
                    span.kind,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _values(span.attributes),
                    resource,
                    span.status.message,
                )


@contextmanager
def running_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpCollector]:
    """Run a collector, and point OpenTelemetry's variables at it. Exports come every 50 ms."""
    collector = OtlpCollector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.requests.append(self.path)
            if collector.mode == "hang":
                collector.released.wait(HANG_S)
                self.close_connection = True
                return
            if collector.mode == "refuse":
                self.send_error(400)
                return
            collector.take(self.path, gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    try:
        yield collector
    finally:
        collector.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
