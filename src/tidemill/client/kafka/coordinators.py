"""Requests to the coordinators of groups and transactions, and the parsing of their responses.

The functions that read a response raise the errors in it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from tidemill.client.kafka.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)
from tidemill.client.kafka.protocol import Answer, Request, plain
from tidemill.model.errors import of_code
from tidemill.model.topics import TopicPartition

NO_OFFSET = -1
ONGOING = "Ongoing"
"""Kafka's name for the state of an open transaction."""


class GroupOffset(NamedTuple):
    """A committed offset: the next one to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class ProducerIdentity(NamedTuple):
    """The producer id and epoch in every batch, and their transactional id."""

    producer_id: int
    producer_epoch: int
    transactional_id: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """The identity as request fields."""
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }


def offset_commit(group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> Request:
    """A commit by a client that is not a member of the group."""
    return plain(OFFSET_COMMIT, {"group_id": group, "retention_time": -1, "topics": _offset_topics(offsets)})


def txn_offset_commit(producer: ProducerIdentity, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> Request:
    """A commit that takes effect when the transaction commits."""
    return plain(TXN_OFFSET_COMMIT, {**producer.fields, "group_id": group, "topics": _offset_topics(offsets)})


def _offset_topics(offsets: Mapping[TopicPartition, GroupOffset]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for partition, committed in offsets.items():
        entry = {
            "partition_index": partition.partition,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "committed_metadata": committed.metadata,
        }
        topics[partition.topic].append(entry)
    return [{"name": name, "partitions": entries} for name, entries in topics.items()]


def check_partitions(answer: Answer) -> None:
    """Raise the error of the first partition that has one."""
    for topic in answer.message().topics:
        for part in topic.partitions:
            if part.error_code:
                raise partition_error(topic.name, part.partition_index, part.error_code)


def offset_fetch(group: str, partitions: Iterable[TopicPartition] | None) -> Request:
    """The request for the offsets of these partitions, or of all that the group has."""
    topics: list[dict[str, Any]] | None = None
    if partitions is not None:
        topics = [{"name": name, "partition_indexes": indexes} for name, indexes in _indexes(partitions).items()]
    return plain(OFFSET_FETCH, {"group_id": group, "topics": topics, "require_stable": True})


def offsets_in(answer: Answer) -> dict[TopicPartition, GroupOffset]:
    """The committed offsets in the response. Partitions without a commit are left out."""
    response = answer.message()
    check(getattr(response, "error_code", 0))
    found = {}
    for topic in response.topics:
        for part in topic.partitions:
            if part.error_code:
                raise partition_error(topic.name, part.partition_index, part.error_code)
            if part.committed_offset != NO_OFFSET:
                epoch = getattr(part, "committed_leader_epoch", -1)
                found[TopicPartition(topic.name, part.partition_index)] = GroupOffset(
                    part.committed_offset, epoch, part.metadata or ""
                )
    return found


def init_producer_id(transactional_id: str | None, timeout_ms: int) -> Request:
    """The request for a producer id. A transactional id also aborts the previous producer's open transaction."""
    fields = {"transactional_id": transactional_id, "transaction_timeout": timeout_ms}
    return plain(INIT_PRODUCER_ID, {**fields, "producer_id": -1, "producer_epoch": -1})


def identity_in(answer: Answer, transactional_id: str | None) -> ProducerIdentity:
    """The producer identity in the response."""
    response = answer.message()
    check(response.error_code)
    return ProducerIdentity(response.producer_id, response.producer_epoch, transactional_id)


def add_partitions(producer: ProducerIdentity, partitions: Collection[TopicPartition]) -> Request:
    """The request that adds partitions to the transaction."""
    fields = {f"v3_and_below_{name}": value for name, value in producer.fields.items()}
    topics = [{"name": name, "partitions": indexes} for name, indexes in _indexes(partitions).items()]
    return plain(ADD_PARTITIONS_TO_TXN, {**fields, "v3_and_below_topics": topics})


def check_added(answer: Answer) -> None:
    """Raise the error of the first partition that has one."""
    for topic in answer.message().results_by_topic_v3_and_below:
        for part in topic.results_by_partition:
            if part.partition_error_code:
                raise partition_error(topic.name, part.partition_index, part.partition_error_code)


def add_offsets(producer: ProducerIdentity, group: str) -> Request:
    """The request that adds a group to the transaction, before its offsets are committed."""
    return plain(ADD_OFFSETS_TO_TXN, {**producer.fields, "group_id": group})


def end_txn(producer: ProducerIdentity, *, commit: bool) -> Request:
    """The request that commits or aborts the transaction."""
    return plain(END_TXN, {**producer.fields, "committed": commit})


def list_open() -> Request:
    """The request for the open transactions of a coordinator."""
    return plain(LIST_TRANSACTIONS, {"state_filters": (ONGOING,), "producer_id_filters": (), "duration_filter": -1})


def open_in(answer: Answer) -> list[str]:
    """The transactional ids in the response."""
    response = answer.message()
    check(response.error_code)
    return [each.transactional_id for each in response.transaction_states]


def check_answer(answer: Answer) -> None:
    """Raise the error of the response."""
    check(answer.message().error_code)


def check(code: int) -> None:
    """Raise the error of a code, unless it is 0."""
    if code:
        raise of_code(code)


def partition_error(topic: str, index: int, code: int) -> Exception:
    """The error of a partition, with its name."""
    error = of_code(code)
    return type(error)(f"{topic}-{index}: {error}")


def _indexes(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition.partition)
    return topics
