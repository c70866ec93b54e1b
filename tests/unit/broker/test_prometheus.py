"""Prometheus reads what the broker counts."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.support.broker_worlds import batch_of, running

from tidemill.broker.metrics import OTHER_TOPICS, TOPICS_MAX, BrokerMetrics
from tidemill.broker.prometheus import registry_of, render
from tidemill.model.metrics import Gauge


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_numbers_of_apis_topics_and_connections() -> None:
    telemetry = BrokerMetrics()
    for seconds in (0.0001, 0.0005, 0.02, 60.0):
        telemetry.api("Produce").answered(seconds)
    telemetry.api("Produce").failed(3)
    telemetry.topic('bad"name\n').produced(100, 7)
    telemetry.topic('bad"name\n').fetched(40)
    telemetry.connection_opened("kafka")
    telemetry.connection_opened("kafka")
    telemetry.connection_closed("kafka")
    telemetry.sources.append(lambda: [Gauge("tidemill_extra", "More.", 4.0, (("kind", "x"),))])
    found = samples(render(registry_of(telemetry, [])))
    assert found["tidemill_requests_total", (("api", "Produce"),)] == 4
    assert found["tidemill_request_errors_total", (("api", "Produce"), ("code", "3"))] == 1
    assert found["tidemill_request_seconds_bucket", (("api", "Produce"), ("le", "0.0005"))] == 2
    assert found["tidemill_request_seconds_bucket", (("api", "Produce"), ("le", "+Inf"))] == 4
    assert found["tidemill_request_seconds_count", (("api", "Produce"),)] == 4
    assert found["tidemill_topic_records_in_total", (("topic", 'bad"name\n'),)] == 7
    assert found["tidemill_topic_bytes_out_total", (("topic", 'bad"name\n'),)] == 40
    assert found["tidemill_connections", (("server", "kafka"),)] == 1
    assert found["tidemill_connections_opened_total", (("server", "kafka"),)] == 2
    assert found["tidemill_extra", (("kind", "x"),)] == 4


async def test_log_sizes_come_from_the_partitions(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("orders", partitions=2)
        await broker.view.partition("orders", 0).leader.append(batch_of(b"a"), acks=1)
        found = samples(render(registry_of(broker.metrics, broker.partitions)))
        assert found["tidemill_partitions", (("topic", "orders"),)] == 2
        assert found["tidemill_log_bytes", (("topic", "orders"),)] == broker.view.partition("orders", 0).size_bytes
        assert found["tidemill_partitions_failed", ()] == 0


def test_names_of_topics_are_bounded() -> None:
    telemetry = BrokerMetrics()
    for number in range(TOPICS_MAX + 5):
        telemetry.topic(f"t{number}").produced(1, 1)
    assert len(telemetry.topics) == TOPICS_MAX + 1
    assert telemetry.topics[OTHER_TOPICS].records_in == 5
    telemetry.forget_topic("t0")
    assert "t0" not in telemetry.topics
