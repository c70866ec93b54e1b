"""A trace through three brokers: the followers name the append of the leader as the parent of their copies."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.cluster_processes import running_brokers
from tests.support.otlp_collector import running_collector
from tests.support.waiting import eventually

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TOPIC = "orders"


def test_replicas_and_readers_are_in_the_trace_of_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        running_collector(monkeypatch) as collector,
        running_brokers(3, {"min.insync.replicas": "3"}, racks=False, otel_traces="true") as brokers,
    ):
        client = {"bootstrap.servers": brokers.bootstrap}
        admin = AdminClient(client)
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
        producer = Producer({**client, "acks": "all", "compression.type": "lz4"})
        producer.produce(TOPIC, b"plain")
        producer.flush(30)
        producer.produce(TOPIC, b"traced", headers=[("traceparent", f"00-{TRACE_ID}-{SPAN_ID}-01".encode())])
        assert producer.flush(30) == 0
        leader = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions[0].leader
        consumer = Consumer({**client, "group.id": "mailer"})
        consumer.assign([TopicPartition(TOPIC, 0, 1)])
        assert [each.value() for each in consumer.consume(1, 30)] == [b"traced"]
        consumer.close()
        eventually(lambda: len(collector.spans_of(TRACE_ID)) >= 5, "spans are missing")
    spans = collector.spans_of(TRACE_ID)
    by_name = {name: [span for span in spans if span.name == f"{name} {TOPIC}"] for name in NAMES}
    assert {name: len(found) for name, found in by_name.items()} == NAMES
    (produced,), (appended,), copies, (fetched,) = by_name.values()
    assert produced.parent_id == SPAN_ID
    assert appended.parent_id == produced.span_id
    assert {span.parent_id for span in (*copies, fetched)} == {appended.span_id}
    nodes = {span.resource["service.instance.id"].rpartition("/")[2] for span in copies}
    assert nodes == {"1", "2", "3"} - {str(leader)}
    assert {span.attributes["tidemill.leader.id"] for span in copies} == {leader}
    assert {span.resource["service.instance.id"].rpartition("/")[2] for span in (produced, appended, fetched)} == {
        str(leader)
    }
    assert {span.attributes["messaging.kafka.offset"] for span in spans} == {1}
    assert {span.trace_id for span in collector.spans} == {TRACE_ID}


NAMES = {"produce": 1, "append": 1, "replicate": 2, "fetch": 1}
"""How many spans of each kind one record has with three replicas."""
