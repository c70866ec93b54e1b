"""Prometheus reads what the broker counts."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tests.support.broker_worlds import batch_of, running
from tests.support.metrics import samples

from tidemill.broker import log_metrics, loop_turns
from tidemill.broker.log_metrics import log_readings
from tidemill.broker.metrics import OTHER_TOPICS, TOPICS_MAX, BrokerMetrics
from tidemill.broker.prometheus import MetricsPage, MetricsText, exposition
from tidemill.broker.server_metrics import server_readings
from tidemill.broker.topic_metrics import topic_readings
from tidemill.model.metrics import CounterReading, Gauge, Histogram, HistogramReading, MetricReading
from tidemill.servers.kafka.error_counts import count_error
from tidemill.supervision.supervisor import Supervisor

NAME = 'bad\\"name\n'
"""A label value with every character that the format escapes."""


def counting() -> BrokerMetrics:
    telemetry = BrokerMetrics()
    telemetry.sources.append(server_readings(telemetry))
    telemetry.snapshots.append(topic_readings(telemetry))
    return telemetry


def text_of(readings: Iterable[MetricReading], *labels: tuple[str, str]) -> str:
    text = MetricsText(labels)
    text.add(readings)
    return b"".join(map(text.encoded, text.names())).decode()


async def test_numbers_of_apis_topics_and_connections() -> None:
    telemetry = counting()
    for seconds in (0.0001, 0.0005, 0.02, 60.0):
        telemetry.api("kafka", "Produce").answered(seconds)
    telemetry.api("kafka", "Produce").failed("UnknownTopicOrPartition")
    telemetry.topic("orders").produced(100, 7)
    telemetry.topic("orders").fetched(40)
    telemetry.connection_opened("kafka")
    telemetry.connection_opened("kafka")
    telemetry.connection_closed("kafka")
    found = samples(await exposition(telemetry, by_partition=False))
    produce = 'api="Produce"'
    assert found[f'tidemill_requests_total{{{produce},server="kafka"}}'] == 4
    errors = f'tidemill_request_errors_total{{{produce},error="UnknownTopicOrPartition",server="kafka"}}'
    assert found[errors] == 1
    bucket = f"tidemill_request_duration_seconds_bucket{{{produce}"
    assert found[f'{bucket},le="0.0005",server="kafka"}}'] == 2
    assert found[f'{bucket},le="+Inf",server="kafka"}}'] == 4
    assert found[f'tidemill_request_duration_seconds_count{{{produce},server="kafka"}}'] == 4
    assert found['tidemill_topic_records_in_total{topic="orders"}'] == 7
    assert found['tidemill_topic_bytes_out_total{topic="orders"}'] == 40
    assert found['tidemill_connections{server="kafka"}'] == 1
    assert found['tidemill_connections_opened_total{server="kafka"}'] == 2


async def test_logs_come_from_the_partitions(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("orders", partitions=2)
        await broker.view.partition("orders", 0).leader.append(batch_of(b"a"), acks=1)
        found = samples(await exposition(broker.metrics, by_partition=False))
        assert found['tidemill_partitions{topic="orders"}'] == 2
        assert found['tidemill_partitions_led{topic="orders"}'] == 2
        assert found['tidemill_log_segments{topic="orders"}'] == 2
        assert found['tidemill_log_bytes{topic="orders"}'] == broker.view.partition("orders", 0).size_bytes
        assert found["tidemill_partitions_failed"] == 0
        assert found["tidemill_brokers"] == 1


async def test_a_partition_reports_its_offsets_on_request(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        await broker.topics.create("orders")
        leader = broker.view.partition("orders", 0).leader
        for value in (b"a", b"b", b"c", b"d", b"e"):
            await leader.append(batch_of(value), acks=1)
        await leader.delete_records(2)
        found = samples(await exposition(broker.metrics, by_partition=True))
        offsets = [
            found[f'tidemill_partition_{name}{{partition="0",topic="orders"}}']
            for name in ("log_start_offset", "log_end_offset", "high_watermark", "last_stable_offset")
        ]
        assert offsets == [2, 5, 5, 5]
        assert not [name for name in samples(await exposition(broker.metrics, by_partition=False)) if "offset{" in name]


async def test_a_scrape_changes_no_counter() -> None:
    telemetry = counting()
    telemetry.api("kafka", "Produce").answered(0.02)
    telemetry.topic("orders").produced(100, 7)
    page = MetricsPage(telemetry)
    first, second = await asyncio.gather(page.text(by_partition=False), page.text(by_partition=True))
    assert samples(first) == samples(second) == samples(await page.text(by_partition=False))


async def test_tasks_that_fail_are_counted_by_name() -> None:
    runs, is_failing, again = 0, asyncio.Event(), asyncio.Event()

    async def pause(_: float) -> None:
        await again.wait()

    telemetry = BrokerMetrics(Supervisor(sleep=pause))
    telemetry.sources.append(server_readings(telemetry))

    async def work() -> None:
        nonlocal runs
        runs += 1
        is_failing.set()
        if runs == 1:
            raise ZeroDivisionError
        await asyncio.Event().wait()

    async def job() -> None:
        raise ZeroDivisionError

    task = telemetry.supervisor.keep("delivery", work)
    failed = telemetry.supervisor.spawn("reset", job())
    await is_failing.wait()
    await asyncio.wait({failed})
    await asyncio.sleep(0)
    found = samples(await exposition(telemetry, by_partition=False))
    assert found['tidemill_tasks_failing{task="delivery"}'] == 1
    assert found['tidemill_task_restarts_total{task="delivery"}'] == 0
    is_failing.clear()
    again.set()
    await is_failing.wait()
    found = samples(await exposition(telemetry, by_partition=False))
    task.cancel()
    assert found['tidemill_task_restarts_total{task="delivery"}'] == 1
    assert found['tidemill_job_failures_total{job="reset"}'] == 1


async def test_every_line_has_the_labels_of_the_broker(tmp_path: Path) -> None:
    async with running(tmp_path, memory=True) as broker:
        broker.metrics.labels = (*broker.metrics.labels, ("env", 'a"b'))
        await broker.topics.create("orders")
        text = (await exposition(broker.metrics, by_partition=True)).decode()
        every = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        assert len(every) > 10
        assert {sample.labels["cluster"] for sample in every} == {broker.cluster_id}
        assert {sample.labels["env"] for sample in every} == {'a"b'}


def test_text_is_escaped_and_lines_of_one_metric_are_together() -> None:
    def readings() -> Iterator[MetricReading]:
        for name in (NAME, "plain"):
            yield Gauge("tidemill_a", "A\nB\\", 1, (("topic", name),))
            yield CounterReading("tidemill_b", "B.", 2.5, (("topic", name),))

    lines = text_of(readings(), ("cluster", NAME)).splitlines()
    assert [line.partition("{")[0] for line in lines] == [
        "# HELP tidemill_a A\\nB\\\\",
        "# TYPE tidemill_a gauge",
        "tidemill_a",
        "tidemill_a",
        "# HELP tidemill_b_total B.",
        "# TYPE tidemill_b_total counter",
        "tidemill_b_total",
        "tidemill_b_total",
    ]
    families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    found = [sample for family in families for sample in family.samples]
    assert [(sample.labels["topic"], sample.labels["cluster"]) for sample in found] == [
        (NAME, NAME),
        ("plain", NAME),
    ] * 2


async def test_openmetrics_names_a_counter_without_its_suffix_and_has_an_end() -> None:
    telemetry = BrokerMetrics()
    telemetry.sources.append(
        lambda: [CounterReading("tidemill_b", 'The "B".\n', 2.5), Gauge("tidemill_c", "C\\.", 1, (("topic", NAME),))]
    )
    text = (await exposition(telemetry, by_partition=False, is_openmetrics=True)).decode()
    assert text.splitlines()[:3] == [
        '# HELP tidemill_b The \\"B\\".\\n',
        "# TYPE tidemill_b counter",
        "tidemill_b_total 2.5",
    ]
    assert text.endswith("# EOF\n")
    counter, gauge = openmetrics.text_string_to_metric_families(text)
    assert (counter.documentation, gauge.documentation) == ('The "B".\n', "C\\.")
    assert gauge.samples[0].labels == {"topic": NAME}


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (True, "1.0"), (0.5, "0.5"), (float("inf"), "+Inf"), (float("-inf"), "-Inf"), (float("nan"), "NaN")],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert text_of([Gauge("tidemill_a", "A.", value)]).splitlines()[-1] == f"tidemill_a {text}"


def test_a_histogram_and_a_counter_keep_their_types() -> None:
    delays = Histogram((0.1, 1.0))
    delays.add(0.05)
    delays.add_equal(0.1, 1)
    delays.add(0.5)
    delays.add(7.0)
    label = (("kind", "x"),)
    text = text_of(
        [
            HistogramReading("tidemill_delay_seconds", "Delay.", delays, label),
            HistogramReading("tidemill_plain_seconds", "Plain.", Histogram((0.1,))),
            CounterReading("tidemill_n", "N.", 3),
        ]
    )
    families = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert families == {
        "tidemill_delay_seconds": "histogram",
        "tidemill_plain_seconds": "histogram",
        "tidemill_n": "counter",
    }
    found = samples(text)
    buckets = [found[f'tidemill_delay_seconds_bucket{{kind="x",le="{bound}"}}'] for bound in ("0.1", "1.0", "+Inf")]
    assert buckets == [2, 3, 4]
    assert found['tidemill_delay_seconds_count{kind="x"}'] == 4
    assert found['tidemill_delay_seconds_sum{kind="x"}'] == 7.65
    assert found['tidemill_plain_seconds_bucket{le="+Inf"}'] == 0
    assert found["tidemill_n_total"] == 3
    assert delays.largest == 7.0


async def test_other_work_runs_while_the_text_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_turns, "TURN_S", 0.0)
    telemetry, turns = BrokerMetrics(), 0
    many = [Gauge(f"tidemill_{number % 7}", "N.", number, (("n", str(number)),)) for number in range(5_000)]
    telemetry.sources.append(lambda: many)

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    text = await exposition(telemetry, by_partition=False)
    counter.cancel()
    assert turns >= 5_000 / 50
    assert len(samples(text)) == 5_000


async def test_scrapes_that_wait_share_one_text() -> None:
    telemetry, made = BrokerMetrics(), 0
    gate = asyncio.Event()

    async def slow(by_partition: bool) -> list[MetricReading]:
        nonlocal made
        made += 1
        await gate.wait()
        return [Gauge("tidemill_made", "Texts.", made), Gauge("tidemill_detail", "Detail.", by_partition)]

    telemetry.snapshots.append(slow)
    page = MetricsPage(telemetry)
    first = asyncio.create_task(page.text(by_partition=False))
    await asyncio.sleep(0.01)
    gone, *waiting = [asyncio.create_task(page.text(by_partition=False)) for _ in range(20)]
    detailed = asyncio.create_task(page.text(by_partition=True))
    other_format = asyncio.create_task(page.text(by_partition=True, is_openmetrics=True))
    await asyncio.sleep(0)
    gone.cancel()
    gate.set()
    texts = [samples(each) for each in await asyncio.gather(first, *waiting, detailed)]
    assert (await other_format).endswith(b"# EOF\n")
    assert made == 4
    assert texts[0] == {"tidemill_made": 1, "tidemill_detail": 0}
    assert texts[1:-1] == [{"tidemill_made": 2, "tidemill_detail": 0}] * 19
    assert texts[-1] == {"tidemill_made": 3, "tidemill_detail": 1}


async def test_a_failed_scrape_does_not_stop_the_next_one() -> None:
    telemetry, page_works = BrokerMetrics(), False

    def source() -> list[MetricReading]:
        if not page_works:
            raise ZeroDivisionError
        return [Gauge("tidemill_a", "A.", 1)]

    telemetry.sources.append(source)
    page = MetricsPage(telemetry)
    with pytest.raises(ZeroDivisionError):
        await page.text(by_partition=False)
    page_works = True
    assert samples(await page.text(by_partition=False)) == {"tidemill_a": 1}


def test_names_of_topics_are_bounded() -> None:
    telemetry = BrokerMetrics()
    for number in range(TOPICS_MAX + 5):
        telemetry.topic(f"t{number}").produced(1, 1)
    assert len(telemetry.topics) == TOPICS_MAX + 1
    assert telemetry.topics[OTHER_TOPICS].records_in == 5
    telemetry.forget_topic("t0")
    assert "t0" not in telemetry.topics


def test_refusals_that_a_protocol_expects_are_not_errors() -> None:
    telemetry = BrokerMetrics()
    count_error(telemetry, "JoinGroup", 79)
    count_error(telemetry, "Heartbeat", 27)
    count_error(telemetry, "ConsumerGroupDescribe", 69)
    count_error(telemetry, "DescribeGroups", 69, 4)
    assert telemetry.apis == {}
    count_error(telemetry, "JoinGroup", 16, 2)
    count_error(telemetry, "SyncGroup", 27)
    count_error(telemetry, "LeaveGroup", 69)
    assert telemetry.api("kafka", "JoinGroup").errors == {"NotCoordinator": 2}
    assert telemetry.api("kafka", "SyncGroup").errors == {"RebalanceInProgress": 1}
    assert telemetry.api("kafka", "LeaveGroup").errors == {"GroupIdNotFound": 1}


async def test_logs_of_many_topics_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_metrics, "TOPICS_MAX", 2)
    async with running(tmp_path, memory=True) as broker:
        for number in range(5):
            await broker.topics.create(f"t{number}")
        found = [each for each in await log_readings(broker.partitions)(False) if each.name == "tidemill_partitions"]
        counts = {each.labels[0][1]: each.value for each in found if isinstance(each, Gauge)}
        assert counts == {OTHER_TOPICS: 3, "t0": 1, "t1": 1}
