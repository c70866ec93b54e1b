"""What the transaction coordinator needs besides a journal: a function that writes markers, and limits."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from tidemill.model.topics import TopicPartition


class TransactionMarker(NamedTuple):
    """The end of a transaction on one partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int = 0
    """The epoch under which the coordinator leads its part of the journal."""


WriteMarker: TypeAlias = Callable[[TransactionMarker], Awaitable[None]]
"""Durable when it returns. The same marker may come again after a crash; writing it twice does no harm."""


class TransactionLimits(NamedTuple):
    """Kafka's `transaction.max.timeout.ms` and `transactional.id.expiration.ms`."""

    timeout_ms_max: int = 900_000
    id_expiry_ms: int = 604_800_000
