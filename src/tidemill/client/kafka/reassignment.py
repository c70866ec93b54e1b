"""Reads and changes the replicas and leaders of partitions."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from tidemill.client.kafka.apis import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
)
from tidemill.client.kafka.protocol import plain
from tidemill.client.kafka.routing import RequestRouter
from tidemill.model.errors import ElectionNotNeeded, KafkaError, of_code
from tidemill.model.topics import TopicPartition

TIMEOUT = timedelta(seconds=30)
PREFERRED = 0


class Carried(NamedTuple):
    """The leader and the replicas of a partition."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    internal: bool


class Moving(NamedTuple):
    """A partition that is being moved."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def carriers(router: RequestRouter, topics: Iterable[str] | None) -> dict[TopicPartition, Carried]:
    """The replicas of the partitions of these topics, or of all topics."""

    def ask() -> dict[TopicPartition, Carried]:
        names = None if topics is None else [{"name": name, "topic_id": None} for name in sorted(set(topics))]
        fields = {"topics": names, "allow_auto_topic_creation": False}
        response = router.anyone().call(plain(METADATA, fields)).message()
        for topic in response.topics:
            if topic.error_code:
                raise of_code(topic.error_code, f"topic {topic.name}: {of_code(topic.error_code)}")
        return {
            TopicPartition(topic.name, part.partition_index): Carried(
                part.leader_id, tuple(part.replica_nodes), tuple(part.isr_nodes), bool(topic.is_internal)
            )
            for topic in response.topics
            for part in topic.partitions
        }

    return router.persist("ask for replicas", ask)


def reassign(
    router: RequestRouter, wanted: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, KafkaError | None]:
    """Move partitions to these brokers; None cancels a move. Returns the error of each partition, or None."""
    by_topic: dict[str, list[dict[str, object]]] = {}
    for (name, index), replicas in wanted.items():
        part: dict[str, object] = {"partition_index": index, "replicas": replicas and tuple(replicas)}
        by_topic.setdefault(name, []).append(part)
    topics = [{"name": name, "partitions": parts} for name, parts in by_topic.items()]
    fields = {"timeout": TIMEOUT, "topics": topics}

    def ask() -> dict[TopicPartition, KafkaError | None]:
        response = router.anyone().call(plain(ALTER_PARTITION_REASSIGNMENTS, fields)).message()
        if response.error_code:
            raise of_code(response.error_code, response.error_message or "")
        return {
            TopicPartition(topic.name, part.partition_index): (
                of_code(part.error_code, part.error_message or "") if part.error_code else None
            )
            for topic in response.responses
            for part in topic.partitions
        }

    return router.persist("reassign", ask)


def reassignments(router: RequestRouter) -> dict[TopicPartition, Moving]:
    """Every partition that is being moved."""

    def ask() -> dict[TopicPartition, Moving]:
        fields = {"timeout": TIMEOUT, "topics": None}
        response = router.anyone().call(plain(LIST_PARTITION_REASSIGNMENTS, fields)).message()
        if response.error_code:
            raise of_code(response.error_code, response.error_message or "")
        return {
            TopicPartition(topic.name, part.partition_index): Moving(
                tuple(part.replicas), tuple(part.adding_replicas), tuple(part.removing_replicas)
            )
            for topic in response.topics
            for part in topic.partitions
        }

    return router.persist("list reassignments", ask)


def elect_preferred(
    router: RequestRouter, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Elect the first replica of each partition as leader. Returns the error of each partition, or None."""
    by_topic: dict[str, list[int]] = {}
    for name, index in partitions:
        by_topic.setdefault(name, []).append(index)
    topics = [{"topic": name, "partitions": tuple(indexes)} for name, indexes in by_topic.items()]
    fields = {"election_type": PREFERRED, "topic_partitions": topics, "timeout": TIMEOUT}

    def ask() -> dict[TopicPartition, KafkaError | None]:
        response = router.anyone().call(plain(ELECT_LEADERS, fields)).message()
        if getattr(response, "error_code", 0):
            raise of_code(response.error_code)
        return {
            TopicPartition(topic.topic, part.partition_id): (
                None
                if part.error_code in {0, ElectionNotNeeded.code}
                else of_code(part.error_code, part.error_message or "")
            )
            for topic in response.replica_election_results
            for part in topic.partition_result
        }

    return router.persist("elect leaders", ask)
