"""What a query reads next, planned from the offsets of a real broker, without Spark."""

from collections import Counter
from collections.abc import Mapping
from threading import Timer
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as AdminPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.client.kafka import KafkaClient
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.source.client_pool import CLIENTS_MAX
from tidemill.pipelines.source.core.offsets import QueryProgress
from tidemill.pipelines.source.core.options import parse_source
from tidemill.pipelines.source.planning import Planner
from tidemill.pipelines.source.record_sizes import SAMPLE_BYTES_MAX, SAMPLE_BYTES_MIN, SAMPLES_BYTES, sample_size
from tidemill.testing import Broker

LIMIT_S = 30
PAUSE_S = 0.3
"""In which the client hears that there is no such topic."""


class Late(KafkaClient):
    """A client whose topic is deleted before it asks for offsets, and is there again before it gives up."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__({"bootstrap.servers": servers})
        self._servers = servers
        self._topic = topic

    def list_offsets(self, wanted: Mapping[TopicPartition, int], **named: Any) -> Any:
        admin = AdminClient({"bootstrap.servers": self._servers})
        admin.delete_topics([self._topic])[self._topic].result(LIMIT_S)
        again = Timer(PAUSE_S, create, (self._servers, self._topic, 5))
        again.start()
        found = super().list_offsets(wanted, **named)
        again.join(LIMIT_S)
        return found


class Counting(KafkaClient):
    """A client that counts the fetches of each partition, and the clients that fetch."""

    def __init__(self, servers: str, fetches: Counter[TopicPartition], clients: set[int]) -> None:
        super().__init__({"bootstrap.servers": servers})
        self._given = servers, fetches, clients

    def another(self) -> KafkaClient:
        return Counting(*self._given)

    def fetch(self, partition: TopicPartition, offset: int, **named: Any) -> Any:
        _, fetches, clients = self._given
        fetches[partition] += 1
        clients.add(id(self))
        return super().fetch(partition, offset, **named)


def create(servers: str, topic: str, records: int, partitions: int = 1) -> None:
    """Create a topic with so many records in each partition."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(LIMIT_S)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(records * partitions):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(LIMIT_S) == 0


def test_a_backlog_is_read_in_parts_despite_larger_and_deleted_records() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        create(servers, "orders", 2000)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        for _ in range(400):
            producer.produce("orders", b"x" * 10_000)
        assert producer.flush(LIMIT_S) == 0
        part = TopicPartition("orders", 0)
        given = {"kafka.bootstrap.servers": servers, "subscribe": "orders"}
        with KafkaClient({"bootstrap.servers": servers}) as client:
            planner = Planner(client, parse_source({**given, "maxBytesPerTrigger": "500k"}, streaming=True))
            at, pieces, newest = QueryProgress({part: 0}), [], planner.newest()
            while at.offsets != newest.offsets:
                start, at = at, planner.advance(at, newest, unlimited=False)
                large = max(2000, at.offsets[part]) - max(2000, start.offsets[part])
                pieces.append(large * 10_000)
            assert max(pieces) <= 2 * 500 * 1024, pieces
            assert len(pieces) <= 40, pieces
            default = Planner(client, parse_source(given, streaming=True))
            assert default.advance(QueryProgress({part: 0}), newest, unlimited=False).offsets == newest.offsets
            admin = AdminClient({"bootstrap.servers": servers})
            [gone] = admin.delete_records([AdminPartition("orders", 0, 2100)]).values()
            gone.result(LIMIT_S)
            behind = planner.advance(QueryProgress({part: 0}), newest, unlimited=False).offsets[part]
            assert behind <= 500 * 1024 // 10_000 + 1  # measured where the log begins now


def test_a_backlog_that_fits_into_a_sample_is_fetched_once_by_several_clients() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        create(servers, "orders", 20, partitions=32)
        fetches: Counter[TopicPartition] = Counter()
        clients: set[int] = set()
        options = parse_source({"kafka.bootstrap.servers": servers, "subscribe": "orders"}, streaming=True)
        with Counting(servers, fetches, clients) as client:
            planner = Planner(client, options)
            newest = planner.newest()
            assert set(newest.offsets.values()) == {20}
            start = QueryProgress(dict.fromkeys(newest.offsets, 0), newest.ids)
            assert planner.advance(start, newest, unlimited=False) == newest
        assert fetches == dict.fromkeys(newest.offsets, 1)
        assert len(clients) == CLIENTS_MAX


def test_the_samples_of_many_partitions_are_small() -> None:
    assert sample_size(1) == sample_size(64) == SAMPLE_BYTES_MAX
    assert sample_size(1000) == SAMPLES_BYTES // 1000
    assert sample_size(1_000_000) == SAMPLE_BYTES_MIN


def test_offsets_of_a_topic_that_was_created_again_meanwhile_come_with_its_own_id() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        create(servers, "orders", 2)
        options = parse_source({"kafka.bootstrap.servers": servers, "subscribe": "orders"}, streaming=True)
        with KafkaClient({"bootstrap.servers": servers}) as client:
            before = Planner(client, options).newest()
        with Late(servers, "orders") as client:
            after = Planner(client, options).newest()
        assert before.renewed_in(after) == {"orders"}
        with KafkaClient({"bootstrap.servers": servers}) as client:
            assert Planner(client, options).newest().ids == after.ids
