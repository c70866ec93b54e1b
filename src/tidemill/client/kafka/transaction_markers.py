"""Requests between brokers about transactions: verify that a partition is in one, and write its end marker."""

from typing import Any, NamedTuple

from tidemill.client.kafka.apis import ClientApi
from tidemill.client.kafka.protocol import Answer, Request, plain
from tidemill.model.errors import TidemillError, of_code
from tidemill.model.topics import TopicPartition

PARTITIONS_OF_TRANSACTION = ClientApi(24, 4, 5)
"""AddPartitionsToTxn from version 4 on is for brokers, and can verify without adding."""
WRITE_TXN_MARKERS = ClientApi(27, 1, 1)


class TransactionalProducer(NamedTuple):
    """The producer of a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def verify_request(writer: TransactionalProducer, partition: TopicPartition, *, verify_only: bool) -> Request:
    """Verify that the partition is in the open transaction, or add it."""
    topics = [{"name": partition.topic, "partitions": (partition.partition,)}]
    transaction = {**writer._asdict(), "verify_only": verify_only, "topics": topics}
    return plain(PARTITIONS_OF_TRANSACTION, {"transactions": [transaction]})


def verified(answer: Answer) -> None:
    """Raise the error of the coordinator."""
    response = answer.message()
    _raise(response.error_code)
    for transaction in response.results_by_transaction:
        for topic in transaction.topic_results:
            for part in topic.results_by_partition:
                _raise(part.partition_error_code)


def marker_request(
    partition: TopicPartition, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int
) -> Request:
    """Write the end marker of a transaction to a partition."""
    marker: dict[str, Any] = {
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "transaction_result": commit,
        "topics": [{"name": partition.topic, "partition_indexes": (partition.partition,)}],
        "coordinator_epoch": coordinator_epoch,
    }
    return plain(WRITE_TXN_MARKERS, {"markers": [marker]})


def marker_written(answer: Answer) -> None:
    """Raise the error of the leader."""
    for marker in answer.message().markers:
        for topic in marker.topics:
            for part in topic.partitions:
                _raise(part.error_code)


def _raise(code: int) -> None:
    if code:
        error: TidemillError = of_code(code)
        raise error
