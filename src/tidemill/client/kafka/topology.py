"""The brokers, topics and leaders of a cluster, from the last Metadata responses.

A topology is never changed, only replaced. The router fetches it again when a broker reports that it is stale.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from tidemill.client.kafka.protocol import Answer
from tidemill.model.errors import KafkaError, LeaderNotAvailable, UnknownTopicOrPartition, of_code
from tidemill.model.topics import TopicPartition


class BrokerEndpoint(NamedTuple):
    """The address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TopicInfo(NamedTuple):
    """A topic: its leaders by partition (-1 without a leader), and its id if the broker has topic ids."""

    name: str
    topic_id: UUID | None
    internal: bool
    leaders: Mapping[int, int]

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions in order."""
        return [TopicPartition(self.name, index) for index in sorted(self.leaders)]


@dataclass(frozen=True, slots=True)
class Topology:
    """The brokers by node id, the topics by name, and the errors of the topics that could not be described."""

    brokers: Mapping[int, BrokerEndpoint] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    missing: Mapping[str, KafkaError] = field(default_factory=dict)

    def leader_of(self, partition: TopicPartition) -> int:
        """The node id of the leader. UnknownTopicOrPartition or LeaderNotAvailable when there is none."""
        if partition.topic in self.missing:
            raise self.missing[partition.topic]
        topic = self.topics.get(partition.topic)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {partition.topic}")
        leader = topic.leaders.get(partition.partition)
        if leader is None:
            raise UnknownTopicOrPartition(f"topic {partition.topic} has no partition {partition.partition}")
        if leader not in self.brokers:
            raise LeaderNotAvailable(f"{partition} has no leader at the moment")
        return leader

    def with_answer(self, answer: Answer) -> "Topology":
        """The topology after a Metadata response. Topics that are not in the response stay as they were."""
        response = answer.message()
        topics, missing = dict(self.topics), dict(self.missing)
        for topic in response.topics:
            topics.pop(topic.name, None)
            missing.pop(topic.name, None)
            if topic.error_code:
                missing[topic.name] = _refusal(topic.name, topic.error_code)
            else:
                leaders = {part.partition_index: part.leader_id for part in topic.partitions}
                topic_id = getattr(topic, "topic_id", None)
                topics[topic.name] = TopicInfo(topic.name, topic_id, bool(topic.is_internal), leaders)
        brokers = {broker.node_id: BrokerEndpoint(broker.host, broker.port) for broker in response.brokers}
        return Topology(brokers, topics, missing)


def _refusal(topic: str, code: int) -> KafkaError:
    if code == UnknownTopicOrPartition.code:
        return UnknownTopicOrPartition(f"there is no topic {topic}")
    error = of_code(code)
    return type(error)(f"topic {topic}: {error}")
