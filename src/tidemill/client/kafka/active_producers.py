"""Describes the producers that partitions remember, with their open transactions."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidemill.client.kafka.apis import DESCRIBE_PRODUCERS
from tidemill.client.kafka.protocol import Answer, Request, plain
from tidemill.client.kafka.routing import RequestRouter
from tidemill.model.errors import KafkaError, of_code
from tidemill.model.topics import TopicPartition


class ActiveProducer(NamedTuple):
    """One producer of a partition. `transaction_start` is the first offset of its open transaction; -1 without one."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start: int


def describe(
    router: RequestRouter, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    """The producers of each partition, by id."""

    def ask(share: Mapping[TopicPartition, int]) -> Request:
        topics: dict[str, list[int]] = {}
        for partition in share:
            topics.setdefault(partition.topic, []).append(partition.partition)
        return plain(
            DESCRIBE_PRODUCERS,
            {"topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]},
        )

    return router.at_leaders("describe producers", dict.fromkeys(partitions, 0), ask, _found)


def _found(answer: Answer) -> dict[TopicPartition, tuple[ActiveProducer, ...] | KafkaError]:
    found: dict[TopicPartition, tuple[ActiveProducer, ...] | KafkaError] = {}
    for topic in answer.message().topics:
        for part in topic.partitions:
            found[TopicPartition(topic.name, part.partition_index)] = (
                of_code(part.error_code, part.error_message or "")
                if part.error_code
                else tuple(
                    sorted(
                        ActiveProducer(
                            each.producer_id,
                            each.producer_epoch,
                            each.last_sequence,
                            each.last_timestamp,
                            each.current_txn_start_offset,
                        )
                        for each in part.active_producers
                    )
                )
            )
    return found
