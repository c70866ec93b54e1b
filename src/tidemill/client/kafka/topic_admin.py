"""Creates, extends and deletes topics, and moves the start of their logs."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from tidemill.client.kafka.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_RECORDS, DELETE_TOPICS
from tidemill.client.kafka.protocol import Answer, Request, plain
from tidemill.client.kafka.routing import RequestRouter
from tidemill.model.errors import KafkaError, of_code
from tidemill.model.topics import TopicPartition

BROKERS_CHOICE = -1
"""The number of partitions or replicas that the broker's settings give a new topic."""


class TopicToCreate(NamedTuple):
    """A topic to create, with the settings that differ from the defaults."""

    name: str
    partitions: int = BROKERS_CHOICE
    replication_factor: int = BROKERS_CHOICE
    overrides: Mapping[str, str] = {}


def create(router: RequestRouter, topic: TopicToCreate, *, validate_only: bool) -> None:
    """Create a topic, or only check whether it can be created."""
    wanted = {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "assignments": (),
        "configs": [{"name": name, "value": value} for name, value in topic.overrides.items()],
    }
    fields = {"topics": [wanted], "validate_only": validate_only}
    _change(router, f"create {topic.name}", plain(CREATE_TOPICS, _timed(router, fields)), "topics")


def delete(router: RequestRouter, name: str) -> None:
    """Delete a topic and all its records."""
    _change(router, f"delete {name}", plain(DELETE_TOPICS, _timed(router, {"topic_names": (name,)})), "responses")


def extend(router: RequestRouter, name: str, count: int) -> None:
    """Add partitions to a topic, so that it has `count`."""
    fields = {"topics": [{"name": name, "count": count, "assignments": None}], "validate_only": False}
    _change(router, f"extend {name}", plain(CREATE_PARTITIONS, _timed(router, fields)), "results")


def delete_records(router: RequestRouter, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete the records below an offset of each partition; -1 is its end. Returns the new start offsets."""
    timeout = timedelta(milliseconds=router.options.request_timeout_ms)

    def ask(share: Mapping[TopicPartition, int]) -> Request:
        topics: dict[str, list[dict[str, int]]] = {}
        for partition, offset in share.items():
            topics.setdefault(partition.topic, []).append({"partition_index": partition.partition, "offset": offset})
        fields = {"topics": [{"name": name, "partitions": each} for name, each in topics.items()], "timeout": timeout}
        return plain(DELETE_RECORDS, fields)

    return router.at_leaders("delete records", before, ask, _new_starts)


def _timed(router: RequestRouter, fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "timeout": timedelta(milliseconds=router.options.request_timeout_ms)}


def _change(router: RequestRouter, what: str, request: Request, results: str) -> None:
    """Send a request about one topic, and raise the error in its response."""

    def send() -> None:
        for each in getattr(router.anyone().call(request).message(), results):
            if each.error_code:
                raise of_code(each.error_code, getattr(each, "error_message", None) or "")

    router.persist(what, send)


def _new_starts(answer: Answer) -> dict[TopicPartition, int | KafkaError]:
    found: dict[TopicPartition, int | KafkaError] = {}
    for topic in answer.message().topics:
        for part in topic.partitions:
            found[TopicPartition(topic.name, part.partition_index)] = (
                of_code(part.error_code) if part.error_code else part.low_watermark
            )
    return found
