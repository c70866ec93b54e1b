"""Batches with a right CRC and wrong records: which ones a broker refuses, and how readers skip the others."""

import json
import logging
import urllib.request
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.poisoned import GARBAGE, HUGE_KEY, NEGATIVE_DELTA, RECORD, compressed, sealed
from tests.support.raw_batches import NOW_MS, batch, values_in

from tidemill import Consumer
from tidemill.cli.main import main
from tidemill.client.kafka import LATEST, GroupOffset, KafkaClient
from tidemill.model.errors import InvalidRecord, UnreadableBatch
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.run.lag import lags_of
from tidemill.pipelines.source.core.offsets import OffsetRange
from tidemill.pipelines.source.core.options import parse_source
from tidemill.pipelines.source.reading import read_task
from tidemill.records.compression import Codec
from tidemill.testing import Broker

WAIT_S = 30
COMPRESSED = [codec for codec in Codec if codec]
COUNT_MAX = 2**31 - 1


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[KafkaClient]:
    with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as raw:
        yield raw


def new_partition(broker: Broker, **settings: str) -> TopicPartition:
    name = f"t-{uuid4().hex[:12]}"
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(WAIT_S)
    return TopicPartition(name, 0)


def end_offset(client: KafkaClient, partition: TopicPartition) -> int:
    return client.list_offsets({partition: LATEST})[partition].offset


def refused(client: KafkaClient, partition: TopicPartition, poisoned: bytearray) -> str:
    client.produce(partition, batch("before"))
    with pytest.raises(InvalidRecord) as raised:
        client.produce(partition, poisoned)
    client.produce(partition, batch("after"))
    assert values_in(client, partition) == ["before", "after"]
    assert end_offset(client, partition) == 2
    return str(raised.value)


@pytest.mark.parametrize("codec", Codec)
def test_a_count_that_is_a_lie_does_not_move_the_offsets(broker: Broker, client: KafkaClient, codec: Codec) -> None:
    reason = refused(client, new_partition(broker), sealed(RECORD, COUNT_MAX, codec))
    assert f"{COUNT_MAX} records" in reason


@pytest.mark.parametrize("payload", [NEGATIVE_DELTA, HUGE_KEY])
def test_a_record_that_consumers_cannot_read_is_refused_by_default(
    broker: Broker, client: KafkaClient, payload: bytes
) -> None:
    assert "cannot be read" in refused(client, new_partition(broker), sealed(payload, 1))


@pytest.mark.parametrize(("payload", "count"), [(RECORD * 3, 2), (RECORD * 3, 4), (RECORD[:-2] + RECORD, 2)])
def test_lengths_that_do_not_fit_the_count_are_refused(
    broker: Broker, client: KafkaClient, payload: bytes, count: int
) -> None:
    refused(client, new_partition(broker), sealed(payload, count))


@pytest.mark.parametrize("payload", [NEGATIVE_DELTA, HUGE_KEY])
@pytest.mark.parametrize("codec", Codec)
def test_every_record_is_checked_where_the_topic_says_so(
    broker: Broker, client: KafkaClient, payload: bytes, codec: Codec
) -> None:
    partition = new_partition(broker, tidemill_validate="records")
    assert "cannot be read" in refused(client, partition, compressed(payload, 1, codec))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_garbage_is_refused_where_the_topic_says_so(
    broker: Broker, client: KafkaClient, codec: Codec
) -> None:
    partition = new_partition(broker, tidemill_validate="records")
    assert "cannot be read" in refused(client, partition, sealed(GARBAGE, 3, codec))


def test_a_broker_can_check_every_record_of_all_topics() -> None:
    settings = {"tidemill.validate": "records"}
    with Broker(settings=settings) as strict, KafkaClient({"bootstrap.servers": strict.bootstrap_servers}) as client:
        refused(client, new_partition(strict), sealed(GARBAGE, 3, Codec.ZSTD))


def test_a_compressed_batch_takes_no_more_offsets_than_its_records_could(broker: Broker, client: KafkaClient) -> None:
    """By default compressed records stay closed, so what they are is not known; how many they can be is."""
    partition = new_partition(broker)
    client.produce(partition, sealed(GARBAGE, 90, Codec.SNAPPY))
    assert end_offset(client, partition) == 90
    with pytest.raises(InvalidRecord, match="101 records"):
        client.produce(partition, sealed(GARBAGE, 101, Codec.SNAPPY))


# -- readers of what is stored ----------------------------------------------------------------------------------------

NAMED = "the batch of {} at offsets 1 to 3 cannot be read: "


@pytest.fixture
def stuck(broker: Broker, client: KafkaClient) -> TopicPartition:
    """A partition whose records are readable but for offsets 1 to 3, which are compressed garbage."""
    partition = new_partition(broker)
    client.produce(partition, batch("before"))
    client.produce(partition, sealed(GARBAGE, 3, Codec.ZSTD))
    client.produce(partition, batch("after"))
    return partition


def test_spark_names_the_batch_and_can_leave_it_out(
    broker: Broker, stuck: TopicPartition, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": stuck.topic}
    task = [OffsetRange(stuck, 0, 5)]
    named = NAMED.format(stuck)
    with pytest.raises(UnreadableBatch, match=named) as raised:
        list(read_task(parse_source(options, streaming=False), task, ("value",)))
    assert "set failOnUnreadable=false" in str(raised.value)
    with caplog.at_level(logging.WARNING):
        skipping = parse_source({**options, "failOnUnreadable": "false"}, streaming=False)
        found = [value for rows in read_task(skipping, task, ("value",)) for value in rows["value"].to_pylist()]
    assert found == [b"before", b"after"]
    assert "batch_skipped" in caplog.text
    assert named in caplog.text


def test_sql_names_the_batch_and_can_leave_it_out(
    broker: Broker, stuck: TopicPartition, capfd: pytest.CaptureFixture[str]
) -> None:
    question = f"SELECT offset, value FROM messages WHERE topic = '{stuck.topic}' ORDER BY offset"
    asked = ["sql", question, "--http", broker.http.removeprefix("http://"), "--csv"]
    assert main(asked) == 1
    failed = capfd.readouterr().err
    assert NAMED.format(stuck) in failed
    assert "tidemill sql --skip-unreadable" in failed
    assert main([*asked, "--skip-unreadable"]) == 0
    assert capfd.readouterr().out.splitlines()[1:] == ['0,"before"', '4,"after"']


def test_a_search_by_time_answers_with_the_batch_that_cannot_be_read(
    client: KafkaClient, stuck: TopicPartition
) -> None:
    at = client.list_offsets({stuck: NOW_MS})[stuck]
    assert at.offset == 0
    client.produce(stuck, sealed(GARBAGE, 2, Codec.GZIP, NOW_MS + 10))
    assert client.list_offsets({stuck: NOW_MS + 5})[stuck].offset == 5


def test_the_lag_of_a_group_behind_the_batch_is_shown(
    broker: Broker, client: KafkaClient, stuck: TopicPartition
) -> None:
    group = f"g-{uuid4().hex[:8]}"
    client.commit_offsets(group, {stuck: GroupOffset(1)})
    question = f"SELECT lag FROM consumer_lag WHERE group_id = '{group}'"
    body = json.dumps({"query": question}).encode()
    request = urllib.request.Request(f"{broker.http}/api/v1/sql", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        assert [int(lag) for (lag,) in json.loads(answer.read())["rows"]] == [4]
    (lag,) = lags_of(client, [group], [stuck.topic], NOW_MS)
    assert (lag.committed, lag.end) == (1, 5)


def test_a_consumer_names_the_batch_and_can_leave_it_out(
    broker: Broker, stuck: TopicPartition, caplog: pytest.LogCaptureFixture
) -> None:
    named = NAMED.format(stuck)
    with Consumer(broker.grpc, group=f"g-{uuid4().hex[:8]}", topics=stuck.topic) as consumer:
        first = consumer.next(timeout_ms=WAIT_S * 1000)
        assert first is not None
        assert first.value == b"before"
        with pytest.raises(UnreadableBatch, match=named) as raised:
            consumer.next(timeout_ms=WAIT_S * 1000)
    assert "skip_unreadable=True" in str(raised.value)
    with (
        caplog.at_level(logging.WARNING),
        Consumer(broker.grpc, group=f"g-{uuid4().hex[:8]}", topics=stuck.topic, skip_unreadable=True) as consumer,
    ):
        found = [consumer.next(timeout_ms=WAIT_S * 1000) for _ in range(2)]
    assert [(one.offset, one.value) for one in found if one is not None] == [(0, b"before"), (4, b"after")]
    assert named in caplog.text


def test_the_command_line_names_the_place_and_reads_on_behind_it(
    broker: Broker, stuck: TopicPartition, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = ["consume", stuck.topic, "--bootstrap", broker.bootstrap_servers]
    assert main([*asked, "--from-beginning"]) == 1
    failed = capfd.readouterr()
    assert failed.out == "before\n"
    assert f"{stuck} cannot be read at offset 1: " in failed.err
    assert main([*asked, "--partition", "0", "--offset", "4"]) == 0
    assert capfd.readouterr().out == "after\n"
