"""Prometheus reads what the broker counts."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.broker_worlds import batch_of, running

from tidemill.broker import topic_metrics
from tidemill.broker.metrics import OTHER_TOPICS, TOPICS_MAX, BrokerMetrics
from tidemill.broker.prometheus import exposition, registry_of, render
from tidemill.broker.topic_metrics import topic_readings
from tidemill.model.metrics import CounterReading, Gauge, Histogram, HistogramReading
from tidemill.servers.kafka.error_counts import count_error


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


async def test_numbers_of_apis_topics_and_connections() -> None:
    telemetry = BrokerMetrics()
    for seconds in (0.0001, 0.0005, 0.02, 60.0):
        telemetry.api("kafka", "Produce").answered(seconds)
    telemetry.api("kafka", "Produce").failed("UnknownTopicOrPartition")
    telemetry.topic('bad"name\n').produced(100, 7)
    telemetry.topic('bad"name\n').fetched(40)
    telemetry.connection_opened("kafka")
    telemetry.connection_opened("kafka")
    telemetry.connection_closed("kafka")
    telemetry.sources.append(lambda: [Gauge("tidemill_extra", "More.", 4.0, (("kind", "x"),))])
    telemetry.snapshots.append(topic_readings(telemetry, []))
    found = samples(await exposition(registry_of(telemetry, []), telemetry, by_partition=False))
    produce, server = ("api", "Produce"), ("server", "kafka")
    errors = (produce, ("error", "UnknownTopicOrPartition"), server)
    assert found["tidemill_requests_total", (produce, server)] == 4
    assert found["tidemill_request_errors_total", errors] == 1
    assert found["tidemill_request_duration_seconds_bucket", (produce, ("le", "0.0005"), server)] == 2
    assert found["tidemill_request_duration_seconds_bucket", (produce, ("le", "+Inf"), server)] == 4
    assert found["tidemill_request_duration_seconds_count", (produce, server)] == 4
    assert found["tidemill_topic_records_in_total", (("topic", 'bad"name\n'),)] == 7
    assert found["tidemill_topic_bytes_out_total", (("topic", 'bad"name\n'),)] == 40
    assert found["tidemill_connections", (("server", "kafka"),)] == 1
    assert found["tidemill_connections_opened_total", (("server", "kafka"),)] == 2
    assert found["tidemill_extra", (("kind", "x"),)] == 4


async def test_log_sizes_come_from_the_partitions(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("orders", partitions=2)
        await broker.view.partition("orders", 0).leader.append(batch_of(b"a"), acks=1)
        registry = registry_of(broker.metrics, broker.partitions)
        found = samples(await exposition(registry, broker.metrics, by_partition=False))
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


def test_a_histogram_and_a_counter_keep_their_types() -> None:
    telemetry, delays = BrokerMetrics(), Histogram((0.1, 1.0))
    delays.add_all([0.05, 0.1, 0.5, 7.0])
    label = (("kind", "x"),)
    telemetry.sources.append(
        lambda: [
            HistogramReading("tidemill_delay_seconds", "Delay.", delays, label),
            CounterReading("tidemill_n", "N.", 3),
        ]
    )
    text = render(registry_of(telemetry, []).collect())
    families = {family.name: family.type for family in text_string_to_metric_families(text.decode())}
    assert (families["tidemill_delay_seconds"], families["tidemill_n"]) == ("histogram", "counter")
    found = samples(text)
    buckets = [found["tidemill_delay_seconds_bucket", (*label, ("le", bound))] for bound in ("0.1", "1.0", "+Inf")]
    assert buckets == [2, 3, 4]
    assert found["tidemill_delay_seconds_count", label] == 4
    assert found["tidemill_delay_seconds_sum", label] == 7.65
    assert found["tidemill_n_total", ()] == 3
    assert delays.largest == 7.0


def test_refusals_that_a_protocol_expects_are_not_errors() -> None:
    telemetry = BrokerMetrics()
    count_error(telemetry, "JoinGroup", 79)
    count_error(telemetry, "ConsumerGroupDescribe", 69)
    count_error(telemetry, "DescribeGroups", 69, 4)
    assert telemetry.apis == {}
    count_error(telemetry, "JoinGroup", 16, 2)
    count_error(telemetry, "LeaveGroup", 69)
    assert telemetry.api("kafka", "JoinGroup").errors == {"NotCoordinator": 2}
    assert telemetry.api("kafka", "LeaveGroup").errors == {"GroupIdNotFound": 1}


async def test_logs_of_many_topics_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_metrics, "TOPICS_MAX", 2)
    async with running(tmp_path, memory=True) as broker:
        for number in range(5):
            await broker.topics.create(f"t{number}")
        found = list(await topic_readings(broker.metrics, broker.partitions)(False))
        assert [each.labels[0][1] for each in found if each.name == "tidemill_partitions"] == [OTHER_TOPICS, "t0", "t1"]
