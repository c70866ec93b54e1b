"""What a query reads next, as a real broker tells it, without Spark."""

from collections.abc import Mapping
from threading import Timer
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.client.raw import RawClient
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.core.options import parse_source
from tidemill.pipelines.planning import Planner
from tidemill.testing import Broker

LIMIT_S = 30
PAUSE_S = 0.3
"""In which the client hears that there is no such topic."""


class Late(RawClient):
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


def create(servers: str, topic: str, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(LIMIT_S)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(records):
        producer.produce(topic, str(number))
    assert producer.flush(LIMIT_S) == 0


def test_offsets_of_a_topic_that_was_created_again_meanwhile_come_with_its_own_id() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        create(servers, "orders", 2)
        options = parse_source({"kafka.bootstrap.servers": servers, "subscribe": "orders"}, streaming=True)
        with RawClient({"bootstrap.servers": servers}) as client:
            before = Planner(client, options).newest()
        with Late(servers, "orders") as client:
            after = Planner(client, options).newest()
        assert before.renewed_in(after) == {"orders"}
        with RawClient({"bootstrap.servers": servers}) as client:
            assert Planner(client, options).newest().ids == after.ids
