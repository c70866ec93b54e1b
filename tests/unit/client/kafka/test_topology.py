"""The leaders of partitions, after responses to Metadata."""

from typing import Any

import pytest
from tests.unit.client.kafka.server_side import written

from tidemill.client.kafka.apis import METADATA
from tidemill.client.kafka.protocol import compose
from tidemill.client.kafka.topology import BrokerEndpoint, Topology
from tidemill.model.errors import LeaderNotAvailable, TopicAuthorizationFailed, UnknownTopicOrPartition
from tidemill.model.topics import TopicPartition
from tidemill.wire.kafka.schema import response_class

BROKERS = [{"node_id": 1, "host": "a", "port": 9092}, {"node_id": 2, "host": "::1", "port": 9093}]


def reported(topology: Topology, topics: list[dict[str, Any]], version: int = METADATA.high) -> Topology:
    message = compose(response_class(METADATA.key, version), {"brokers": BROKERS, "topics": topics})
    return topology.with_answer(written(METADATA, version, message))


def topic(name: str, leaders: list[int], error_code: int = 0) -> dict[str, Any]:
    parts = [{"partition_index": index, "leader_id": leader} for index, leader in enumerate(leaders)]
    return {"name": name, "error_code": error_code, "partitions": parts}


@pytest.mark.parametrize("version", range(METADATA.low, METADATA.high + 1))
def test_leaders_are_known_from_every_version(version: int) -> None:
    topology = reported(Topology(), [topic("t", [2, 1])], version)
    assert topology.leader_of(TopicPartition("t", 0)) == 2
    assert topology.brokers == {1: BrokerEndpoint("a", 9092), 2: BrokerEndpoint("::1", 9093)}
    assert topology.topics["t"].partitions == [TopicPartition("t", 0), TopicPartition("t", 1)]


def test_a_later_response_replaces_only_its_own_topics() -> None:
    topology = reported(reported(Topology(), [topic("t", [1]), topic("u", [1])]), [topic("t", [2])])
    assert [topology.leader_of(TopicPartition(name, 0)) for name in ("t", "u")] == [2, 1]


def test_partitions_without_a_leader_are_named() -> None:
    topology = reported(Topology(), [topic("t", [-1]), topic("gone", [], 3), topic("secret", [], 29)])
    with pytest.raises(LeaderNotAvailable, match="t-0 has no leader"):
        topology.leader_of(TopicPartition("t", 0))
    with pytest.raises(UnknownTopicOrPartition, match="topic t has no partition 1"):
        topology.leader_of(TopicPartition("t", 1))
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic gone"):
        topology.leader_of(TopicPartition("gone", 0))
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic never"):
        topology.leader_of(TopicPartition("never", 0))
    with pytest.raises(TopicAuthorizationFailed, match="topic secret: Not allowed"):
        topology.leader_of(TopicPartition("secret", 0))


def test_a_topic_that_comes_back_is_no_longer_missing() -> None:
    topology = reported(reported(Topology(), [topic("t", [], 3)]), [topic("t", [1])])
    assert topology.leader_of(TopicPartition("t", 0)) == 1


def test_addresses_are_written_as_they_are_given() -> None:
    assert (str(BrokerEndpoint("a", 1)), str(BrokerEndpoint("::1", 2))) == ("a:1", "[::1]:2")
