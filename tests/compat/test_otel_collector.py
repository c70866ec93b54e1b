"""Metrics and traces by OTLP, read by a real collector of OpenTelemetry.

`collector/` links its OTLP receiver and its exporter to a file. The first run builds it, in one to four minutes.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families
from tests.compat.programs import go_program
from tests.support.postgres import free_port
from tests.support.waiting import eventually

from tidemill import Message, Timeline
from tidemill.testing import Broker

BUILD_S = 900
WAIT_S = 60.0
TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
pytestmark = [pytest.mark.long, pytest.mark.timeout(BUILD_S + 120)]

COUNTER, GAUGE, HISTOGRAM = "sum", "gauge", "histogram"
KINDS = {"counter": COUNTER, "gauge": GAUGE, "histogram": HISTOGRAM}


class CollectorFile(NamedTuple):
    """What a running collector has written to its file."""

    file: Path

    def documents(self, kind: str) -> list[dict[str, Any]]:
        """The scopes of all exports with their resource: `resourceSpans` or `resourceMetrics`."""
        found = []
        for line in self.file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                found += json.loads(line).get(kind, [])
        return found

    def spans(self) -> list[dict[str, Any]]:
        """All spans, with the attributes of their broker."""
        return [
            {**span, "resource": values(each["resource"]), "attributes": values(span)}
            for each in self.documents("resourceSpans")
            for scope in each["scopeSpans"]
            for span in scope["spans"]
        ]

    def metrics(self) -> dict[str, dict[str, Any]]:
        """The newest export, by name."""
        exports = self.documents("resourceMetrics")
        return {} if not exports else {each["name"]: each for s in exports[-1]["scopeMetrics"] for each in s["metrics"]}


def values(document: dict[str, Any]) -> dict[str, Any]:
    """Attributes, as strings and numbers."""
    return {each["key"]: next(iter(each["value"].values())) for each in document.get("attributes", ())}


@pytest.fixture(scope="module")
def program() -> Path:
    return go_program("collector", "otel-collector", BUILD_S)


@pytest.fixture
def collector(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CollectorFile]:
    file, log = tmp_path / "received.jsonl", tmp_path / "log"
    address = f"127.0.0.1:{free_port()}"
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
        "exporters": {"file": {"path": str(file), "flush_interval": "50ms"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {kind: {"receivers": ["otlp"], "exporters": ["file"]} for kind in ("traces", "metrics")},
        },
    }
    with log.open("wb") as output:
        process = subprocess.Popen([program, "--config", f"yaml:{json.dumps(config)}"], stderr=output)
        try:
            eventually(lambda: "Everything is ready" in log.read_text(), "the collector is not ready", within_s=WAIT_S)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{address}")
            monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
            monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
            yield CollectorFile(file)
        finally:
            process.terminate()
            assert process.wait(WAIT_S) == 0, log.read_text()
    assert "error" not in log.read_text()


def test_the_collector_reads_every_metric_as_the_page_shows_it(collector: CollectorFile) -> None:
    with Broker(flags={"otel-metrics": "true", "metrics-labels": "env=test"}) as broker:
        produce(broker)
        read(broker, 2)
        families: dict[str, Any] = {}

        def is_same() -> bool:
            page = httpx.get(f"{broker.http}/metrics", timeout=WAIT_S).text
            families.clear()
            for each in text_string_to_metric_families(page):
                families[f"{each.name}_total" if each.type == "counter" else each.name] = each
            return families.keys() == collector.metrics().keys()

        eventually(is_same, "the collector has other names than the page", within_s=WAIT_S)
        eventually(lambda: values_of(collector, "tidemill_topic_records_in_total", topic="orders") == [2])
        received = collector.metrics()
    assert len(received) > 50
    for name, metric in received.items():
        kind = KINDS[families[name].type]
        assert kind in metric, (name, metric.keys())
        assert not metric.get("unit"), "the unit is the end of the name"
        assert metric["description"] == families[name].documentation
        if kind in {COUNTER, HISTOGRAM}:
            assert metric[kind]["aggregationTemporality"] == 2, f"{name} is not cumulative"
        if kind == COUNTER:
            assert metric[kind]["isMonotonic"], name
        for point in metric[kind]["dataPoints"]:
            assert values(point)["env"] == "test", name
            assert int(point["timeUnixNano"]) > 0
    (buckets,) = points_of(collector, "tidemill_request_duration_seconds", api="Produce")
    assert sum(map(int, buckets["bucketCounts"])) == int(buckets["count"]) >= 1
    assert len(buckets["bucketCounts"]) == len(buckets["explicitBounds"]) + 1
    assert buckets["explicitBounds"][:3] == [0.0005, 0.001, 0.0025]


def points_of(collector: CollectorFile, name: str, **labels: str) -> list[dict[str, Any]]:
    metric = collector.metrics().get(name, {})
    found: list[dict[str, Any]] = next((metric[kind]["dataPoints"] for kind in KINDS.values() if kind in metric), [])
    return [each for each in found if labels.items() <= values(each).items()]


def values_of(collector: CollectorFile, name: str, **labels: str) -> list[float]:
    return [float(each.get("asDouble", each.get("asInt", "nan"))) for each in points_of(collector, name, **labels)]


def test_the_collector_reads_the_traces_of_records_and_timed_messages(collector: CollectorFile) -> None:
    with Broker(flags={"otel-traces": "true"}) as broker:
        produce(broker)
        read(broker, 2)
        with Timeline(broker.grpc, "reminders") as timeline:
            timeline.create()
            timeline.schedule([Message(b"tea", time.time())], traceparent=TRACEPARENT)
            for lease in timeline.work():
                lease.complete()
                break
        names = ("produce orders", "append orders", "fetch orders")
        timed = ("schedule reminders", "lease reminders", "complete reminders")
        eventually(
            lambda: {*names, *timed} <= {span["name"] for span in collector.spans()},
            "spans are missing",
            within_s=WAIT_S,
        )
    spans = collector.spans()
    assert {span["traceId"] for span in spans} == {TRACE_ID}, "only the record with a context is traced"
    by_name = {span["name"]: span for span in spans}
    for chain in (names, timed):
        assert by_name[chain[0]]["parentSpanId"] == SPAN_ID
        assert by_name[chain[1]]["parentSpanId"] == by_name[chain[0]]["spanId"]
        assert by_name[chain[2]]["parentSpanId"] == by_name[chain[1]]["spanId"]
    for span in spans:
        assert 0 < int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert span["resource"]["service.name"] == "tidemill"
    fetched = by_name["fetch orders"]["attributes"]
    assert (fetched["messaging.destination.name"], fetched["messaging.kafka.offset"]) == ("orders", "1")
    assert fetched["messaging.client.id"] == "mailer-1"


def produce(broker: Broker) -> None:
    """One record without a context, and one with the context of its producer."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "shop"})
    producer.produce("orders", b"plain")
    assert producer.flush(WAIT_S) == 0
    producer.produce("orders", b"traced", headers=[("traceparent", TRACEPARENT.encode())])
    assert producer.flush(WAIT_S) == 0


def read(broker: Broker, count: int) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "mailer", "client.id": "mailer-1"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    got = 0
    while got < count:
        found = consumer.consume(count - got, WAIT_S)
        assert found, "no record has arrived"
        got += len(found)
    consumer.close()
