"""Metrics and traces by OTLP: a real broker sends them to a collector of the tests."""

import threading
import time
from collections.abc import Iterator

import grpc
import httpx
import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families
from tests.support.otlp_collector import METRICS, TRACES, OtlpCollector, ReceivedSpan, running_collector
from tests.support.waiting import eventually

from tidemill import Consumer as StreamConsumer
from tidemill import Message, Timeline, TopicProducer
from tidemill.model.errors import InvalidConfig
from tidemill.testing import Broker
from tidemill.wire.grpc import timeline_pb2 as wire
from tidemill.wire.grpc import timeline_pb2_grpc as service

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
TRACED = {"otel-traces": "true"}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpCollector]:
    with running_collector(monkeypatch) as running:
        yield running


def produce(
    broker: Broker, value: bytes, *headers: tuple[str, bytes], codec: str = "none", topic: str = "orders"
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec,
            "client.id": "shop",
            "message.max.bytes": 2_000_000,
        }
    )
    producer.produce(topic, value, headers=list(headers))
    assert producer.flush(30) == 0


def consume(broker: Broker, count: int, topic: str = "orders") -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "mailer",
            "auto.offset.reset": "earliest",
            "client.id": "mailer-1",
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:
        while len(values) < count:
            found = consumer.consume(count - len(values), 30)
            assert found, "no record within 30 s"
            values += [each.value() or b"" for each in found]
    finally:
        consumer.close()
    return values


def named(spans: list[ReceivedSpan], name: str) -> ReceivedSpan:
    return next(span for span in spans if span.name == name)


def have(collector: OtlpCollector, *names: str, trace_id: str = TRACE_ID) -> list[ReceivedSpan]:
    """The spans of the trace, once all of these are there."""

    def found() -> bool:
        return set(names) <= {span.name for span in collector.spans_of(trace_id)}

    eventually(found, f"the collector has no {names}")
    return collector.spans_of(trace_id)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_record_is_traced_from_its_producer_to_its_reader(collector: OtlpCollector, codec: str) -> None:
    with Broker(flags=TRACED) as broker:
        produce(broker, b"first", codec=codec)
        produce(broker, b"tea" * 100, ("traceparent", TRACEPARENT.encode()), codec=codec)
        assert len(consume(broker, 2)) == 2
        spans = have(collector, "produce orders", "append orders", "fetch orders")
    produced, appended = named(spans, "produce orders"), named(spans, "append orders")
    fetched = named(spans, "fetch orders")
    assert produced.parent_id == SPAN_ID
    assert appended.parent_id == produced.span_id
    assert fetched.parent_id == appended.span_id
    assert len({span.span_id for span in spans}) == len(spans) == 3
    assert produced.attributes["messaging.client.id"] == "shop"
    assert fetched.attributes["messaging.client.id"] == "mailer-1"
    assert {span.attributes["messaging.destination.name"] for span in spans} == {"orders"}
    assert {span.attributes["messaging.kafka.offset"] for span in spans} == {1}
    assert all(0 < span.start_ns <= span.end_ns for span in spans)
    assert produced.resource["service.name"] == "tidemill"
    assert {span.trace_id for span in collector.spans} == {TRACE_ID}


def test_a_record_over_grpc_is_in_the_same_tree(collector: OtlpCollector) -> None:
    with Broker(flags=TRACED) as broker:
        with TopicProducer(broker.grpc, "orders") as producer:
            producer.send(b"plain").result(30)
            producer.send(b"tea", headers={"traceparent": TRACEPARENT.encode()}).result(30)
        with StreamConsumer(broker.grpc, group="mailer", topics=["orders"]) as consumer:
            for record in consumer:
                if record.value == b"tea":
                    break
        spans = have(collector, "produce orders", "append orders", "fetch orders")
    assert named(spans, "append orders").parent_id == named(spans, "produce orders").span_id
    assert named(spans, "fetch orders").parent_id == named(spans, "append orders").span_id
    assert {span.attributes["messaging.kafka.offset"] for span in spans} == {1}


def test_a_timed_message_is_traced_to_its_completion(collector: OtlpCollector) -> None:
    with Broker(flags=TRACED) as broker, grpc.insecure_channel(broker.grpc) as channel:
        stub = service.TimelineServiceStub(channel)
        stub.CreateTimeline(wire.CreateTimelineRequest(name="reminders"))
        ids = schedule(stub, b"tea", (("traceparent", TRACEPARENT),))
        lease_and_settle(stub, wire.ACTION_RELEASE)
        lease_and_settle(stub, wire.ACTION_COMPLETE)
        spans = have(collector, "schedule reminders", "release reminders", "complete reminders")
    scheduled, completed = named(spans, "schedule reminders"), named(spans, "complete reminders")
    leases = {span.span_id: span for span in spans if span.name == "lease reminders"}
    assert scheduled.parent_id == SPAN_ID
    assert {each.parent_id for each in leases.values()} == {scheduled.span_id}
    assert leases[named(spans, "release reminders").parent_id].attributes["tidemill.attempts"] == 1
    assert leases[completed.parent_id].attributes["tidemill.attempts"] > 1  # the same stream may lease it once more
    assert leases[completed.parent_id].attributes["messaging.client.id"] == "worker"
    assert {span.attributes["messaging.message.id"] for span in spans} == set(ids)
    assert all(span.start_ns <= span.end_ns for span in spans)
    assert all(each.start_ns >= scheduled.end_ns for each in leases.values())


def schedule(stub: service.TimelineServiceStub, body: bytes, metadata: tuple[tuple[str, str], ...]) -> list[str]:
    session = stub.Handshake(wire.HandshakeRequest(role=wire.ROLE_PRODUCER, timeline="reminders")).session
    message = wire.NewMessage(body=body, due_ms=int(time.time() * 1000))
    request = wire.ScheduleRequest(session=session, messages=[message])
    return [each.id for each in stub.Schedule(request, metadata=metadata).outcomes]


def lease_and_settle(stub: service.TimelineServiceStub, action: "wire.Action") -> None:
    session = stub.Handshake(wire.HandshakeRequest(role=wire.ROLE_CONSUMER, timeline="reminders", id="worker")).session
    ups: list[wire.WorkUp] = [wire.WorkUp(start=wire.WorkStart(session=session))]
    added, ended = threading.Event(), threading.Event()

    def requests() -> Iterator[wire.WorkUp]:
        yield ups[0]
        added.wait(30)
        yield from ups[1:]
        ended.wait(30)

    for down in stub.Work(requests(), timeout=60):
        if down.HasField("leases"):
            lease = down.leases.leases[0]
            operation = wire.Operation(action=action, seq=lease.seq, token=lease.token)
            ups.append(wire.WorkUp(operations=wire.Operations(number=1, operations=[operation])))
            added.set()
        if down.HasField("outcomes"):
            assert down.outcomes.all_done
            ended.set()


def test_the_client_names_its_trace(collector: OtlpCollector) -> None:
    with Broker(flags=TRACED) as broker, Timeline(broker.grpc, "reminders") as timeline:
        timeline.create()
        for wrong in ("", "00", TRACEPARENT + "\n", TRACEPARENT.upper()):
            with pytest.raises(ValueError, match="is not a trace context"):
                timeline.schedule([Message(b"tea", time.time())], traceparent=wrong)
        timeline.schedule([Message(b"tea", time.time())], traceparent=TRACEPARENT)
        for lease in timeline.work(consumer_id="w1"):
            assert lease.body == b"tea"
            lease.complete()
            break
        spans = have(collector, "schedule reminders", "lease reminders", "complete reminders")
    assert named(spans, "complete reminders").parent_id == named(spans, "lease reminders").span_id


HOSTILE = [
    b"",
    b"00",
    TRACEPARENT.encode() + b"0",
    TRACEPARENT[:-1].encode(),
    TRACEPARENT.upper().encode(),
    TRACEPARENT.replace("4", "g").encode(),
    f"00-{'0' * 32}-{SPAN_ID}-01".encode(),
    f"00-{TRACE_ID}-{'0' * 16}-01".encode(),
    f"ff-{TRACE_ID}-{SPAN_ID}-01".encode(),
    TRACEPARENT.encode() + b"-x" * 100_000,
    TRACEPARENT.encode() + b"-x" * 600_000,
    b"\xff" * 55,
    TRACEPARENT.encode() + b"\n",
    f"00-{TRACE_ID}-{SPAN_ID}-00".encode(),  # the client does not record this trace
]


def test_hostile_contexts_change_nothing(collector: OtlpCollector) -> None:
    with Broker(flags=TRACED, settings={"message.max.bytes": 4_000_000}) as broker:
        for value in HOSTILE:
            produce(broker, b"v", ("traceparent", value))
        produce(broker, b"v", ("traceparent", TRACEPARENT.encode()), ("traceparent", TRACEPARENT.encode()))
        produce(broker, b"traceparent")
        produce(broker, b"v", ("Traceparent", TRACEPARENT.encode()))
        with grpc.insecure_channel(broker.grpc) as channel:
            stub = service.TimelineServiceStub(channel)
            stub.CreateTimeline(wire.CreateTimelineRequest(name="reminders"))
            for text in (
                "",
                "00",
                TRACEPARENT.upper(),
                f"00-{'0' * 32}-{SPAN_ID}-01",
                TRACEPARENT + "-" + "x" * 2_000,
            ):
                schedule(stub, b"v", (("traceparent", text),))
            with pytest.raises(grpc.RpcError):  # gRPC itself refuses so much metadata
                schedule(stub, b"v", (("traceparent", "0" * 1_000_000),))
        produce(broker, b"last", ("traceparent", f"00-{'a' * 32}-{SPAN_ID}-01".encode()))
        values = consume(broker, len(HOSTILE) + 4)
        have(collector, "fetch orders", trace_id="a" * 32)
    assert values[-1] == b"last"
    assert [span for span in collector.spans if span.trace_id != "a" * 32] == []


def test_metrics_are_those_of_the_page(collector: OtlpCollector) -> None:
    with Broker(flags={"otel-metrics": "true", "metrics-labels": "env=test"}) as broker:
        produce(broker, b"v")
        assert len(consume(broker, 1)) == 1
        eventually(lambda: collector.metrics and collector.points("tidemill_topic_records_in_total"), "no metrics")
        eventually(lambda: collector.names() == page_names(broker), "other names than on the page")
        page = httpx.get(f"{broker.http}/metrics", timeout=30).text
    ((labels, point),) = [
        each for each in collector.points("tidemill_topic_records_in_total") if each[0]["topic"] == "orders"
    ]
    assert (point.as_int or point.as_double, labels["env"]) == (1, "test")
    assert point.start_time_unix_nano < point.time_unix_nano
    families = text_string_to_metric_families(page)
    sample = next(s for f in families for s in f.samples if s.name == "tidemill_build_info")
    assert [each[0] for each in collector.points("tidemill_build_info")] == [sample.labels]
    buckets = next(p for found, p in collector.points("tidemill_request_duration_seconds") if found["api"] == "Produce")
    assert sum(buckets.bucket_counts) == buckets.count >= 1
    assert len(buckets.bucket_counts) == len(buckets.explicit_bounds) + 1
    assert TRACES not in collector.requests


def page_names(broker: Broker) -> set[str]:
    families = text_string_to_metric_families(httpx.get(f"{broker.http}/metrics", timeout=30).text)
    return {f"{each.name}_total" if each.type == "counter" else each.name for each in families}


def test_operators_name_the_service(collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders-broker")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod")
    with Broker(flags=TRACED) as broker:
        produce(broker, b"v", ("traceparent", TRACEPARENT.encode()))
        resource = have(collector, "append orders")[0].resource
    assert (resource["service.name"], resource["deployment.environment"]) == ("orders-broker", "prod")
    assert resource["service.instance.id"].endswith("/0")


def test_the_ratio_decides_alone_when_it_is_set(collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    low, high = "1" * 32, "f" * 32
    with Broker(flags=TRACED) as broker:
        produce(broker, b"v", ("traceparent", f"00-{high}-{SPAN_ID}-01".encode()))
        produce(broker, b"v", ("traceparent", f"00-{low}-{SPAN_ID}-00".encode()))
        have(collector, "append orders", trace_id=low)
    assert collector.spans_of(high) == []


@pytest.mark.parametrize("mode", ["hang", "refuse", "away"])
def test_a_broken_collector_costs_spans_only(
    collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    collector.mode = mode
    if mode == "away":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    before = set(threading.enumerate())
    with Broker(flags={**TRACED, "otel-metrics": "true"}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1})
        started = time.monotonic()
        for number in range(200):
            producer.produce("orders", b"v", headers=[("traceparent", f"00-{number + 1:032x}-{SPAN_ID}-01".encode())])
        assert producer.flush(30) == 0
        assert len(consume(broker, 200)) == 200
        assert time.monotonic() - started < 20
        eventually(lambda: dropped(broker) > 0, "no span was dropped")
        if mode != "away":
            eventually(lambda: {METRICS, TRACES} <= set(collector.requests), "the collector was not asked")
        started = time.monotonic()
    assert time.monotonic() - started < 8

    def left() -> list[str]:
        return [each.name for each in set(threading.enumerate()) - before if each.name.startswith("tidemill")]

    # A thread of a store that has ended its last work may still be there for a moment.
    eventually(lambda: not left(), "threads of the broker are left")


def dropped(broker: Broker) -> float:
    page = httpx.get(f"{broker.http}/metrics", timeout=30).text
    lines = [line for line in page.splitlines() if line.startswith("tidemill_spans_dropped_total{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_wrong_variables_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, part in (
        ("OTEL_TRACES_SAMPLER", "sometimes", "'sometimes' is not one of"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "-1", "is not a number from 1"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(InvalidConfig, match=part):
                Broker(flags=TRACED).start()


def test_the_standard_switch_disables_everything(collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with Broker(flags={**TRACED, "otel-metrics": "true"}) as broker:
        produce(broker, b"v", ("traceparent", TRACEPARENT.encode()))
        assert "tidemill_spans" not in httpx.get(f"{broker.http}/metrics", timeout=30).text
    assert collector.requests == []
