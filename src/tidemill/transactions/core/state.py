"""The state of one transactional id.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -+
      ^         |                                        +-> Ongoing | Empty
      |         +----> PrepareAbort  -> CompleteAbort  --+
      +--- InitProducerId

A `Transaction` is an immutable value: a decision creates a new one, the journal stores it whole, and the table holds
the newest. In Prepare* the outcome is fixed. The markers of all `partitions` must be written, however often the broker
crashes meanwhile, and only then is Complete* journaled. So the state alone says what is left to do.

Two identities (producer id, epoch) matter. Only `identity` may act. `last` is the identity that the same producer held
before a bump that it asked for itself (InitProducerId of KIP-360, EndTxn of KIP-890). A request with `last` is a retry
whose answer was lost. A bump that fences (a new instance, a timeout) clears `last`, so that a zombie never looks like a
retry.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from tidemill.model.topics import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 32767
EPOCH_LAST_GIVEN = EPOCH_MAX - 1
"""The highest epoch that a producer gets; the one above it only fences."""


class TransactionStatus(IntEnum):
    """The state of a transaction; the numbers are those of Kafka's journal."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def title(self) -> str:
        """The name that admin clients show and filter by."""
        return self.name.title().replace("_", "")

    @property
    def preparing(self) -> bool:
        """Whether the outcome is fixed and markers are still being written."""
        return self in {TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT}


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and one of its epochs."""

    producer_id: int
    epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id. Times are milliseconds since 1970; `started_ms` is -1 outside of a transaction."""

    transactional_id: str
    identity: ProducerIdAndEpoch
    timeout_ms: int
    updated_ms: int
    last: ProducerIdAndEpoch = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER_ID
    state: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    client_version: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether the producer id has no epoch left."""
        return self.identity.epoch >= EPOCH_LAST_GIVEN

    @property
    def settled(self) -> ProducerIdAndEpoch:
        """The identity that may act once the markers are written; the answer to EndTxn."""
        return (
            self.identity if self.next_producer_id == NO_PRODUCER_ID else ProducerIdAndEpoch(self.next_producer_id, 0)
        )

    @property
    def commits(self) -> bool:
        """Whether the markers commit."""
        return self.state is TransactionStatus.PREPARE_COMMIT

    def repeats(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether this is a retry of the producer from before the bump that it asked for: its answer was lost."""
        return producer != NO_PRODUCER and producer == self.last

    def begin_or_grow(self, more: frozenset[TopicPartition], now_ms: int) -> "Transaction":
        """Return the ongoing transaction with more partitions in it."""
        started_ms = self.started_ms if self.state is TransactionStatus.ONGOING else now_ms
        partitions = self.partitions | more
        return replace(
            self, state=TransactionStatus.ONGOING, partitions=partitions, started_ms=started_ms, updated_ms=now_ms
        )
