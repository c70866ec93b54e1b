"""Batches with a right CRC and wrong records: what a broker refuses, and how readers get past what it cannot."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.poisoned import GARBAGE, HUGE_KEY, NEGATIVE_DELTA, RECORD, compressed, sealed
from tests.integration.raw_batches import batch, values_in

from tidemill.client.raw import LATEST, RawClient
from tidemill.model.errors import InvalidRecord
from tidemill.model.topics import TopicPartition
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
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient({"bootstrap.servers": broker.bootstrap_servers}) as raw:
        yield raw


def new_partition(broker: Broker, **settings: str) -> TopicPartition:
    name = f"t-{uuid4().hex[:12]}"
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(WAIT_S)
    return TopicPartition(name, 0)


def end_offset(client: RawClient, partition: TopicPartition) -> int:
    return client.list_offsets({partition: LATEST})[partition].offset


def refused(client: RawClient, partition: TopicPartition, poisoned: bytearray) -> str:
    client.produce(partition, batch("before"))
    with pytest.raises(InvalidRecord) as raised:
        client.produce(partition, poisoned)
    client.produce(partition, batch("after"))
    assert values_in(client, partition) == ["before", "after"]
    assert end_offset(client, partition) == 2
    return str(raised.value)


@pytest.mark.parametrize("codec", Codec)
def test_a_count_that_is_a_lie_does_not_move_the_offsets(broker: Broker, client: RawClient, codec: Codec) -> None:
    reason = refused(client, new_partition(broker), sealed(RECORD, COUNT_MAX, codec))
    assert f"{COUNT_MAX} records" in reason


@pytest.mark.parametrize(("payload", "count"), [(RECORD * 3, 2), (RECORD * 3, 4), (RECORD[:-2] + RECORD, 2)])
def test_lengths_that_do_not_fit_the_count_are_refused(
    broker: Broker, client: RawClient, payload: bytes, count: int
) -> None:
    refused(client, new_partition(broker), sealed(payload, count))


@pytest.mark.parametrize("payload", [NEGATIVE_DELTA, HUGE_KEY])
@pytest.mark.parametrize("codec", Codec)
def test_every_record_is_checked_where_the_topic_says_so(
    broker: Broker, client: RawClient, payload: bytes, codec: Codec
) -> None:
    partition = new_partition(broker, tidemill_validate="records")
    assert "cannot be read" in refused(client, partition, compressed(payload, 1, codec))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_garbage_is_refused_where_the_topic_says_so(broker: Broker, client: RawClient, codec: Codec) -> None:
    partition = new_partition(broker, tidemill_validate="records")
    assert "cannot be read" in refused(client, partition, sealed(GARBAGE, 3, codec))


def test_a_broker_can_check_every_record_of_all_topics() -> None:
    settings = {"tidemill.validate": "records"}
    with Broker(settings=settings) as strict, RawClient({"bootstrap.servers": strict.bootstrap_servers}) as client:
        refused(client, new_partition(strict), sealed(GARBAGE, 3, Codec.ZSTD))


def test_a_compressed_batch_takes_no_more_offsets_than_its_records_could(broker: Broker, client: RawClient) -> None:
    """By default compressed records stay closed, so what they are is not known; how many they can be is."""
    partition = new_partition(broker)
    client.produce(partition, sealed(GARBAGE, 90, Codec.SNAPPY))
    assert end_offset(client, partition) == 90
    with pytest.raises(InvalidRecord, match="101 records"):
        client.produce(partition, sealed(GARBAGE, 101, Codec.SNAPPY))
