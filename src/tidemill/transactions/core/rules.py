"""The decisions of the transaction coordinator.

Each function takes the known state (None: unknown id), the requesting producer and the time, and returns a `Decision`.
That is the change to journal before anything else happens (None: no change), and the identity or the error to answer
with. A request that is not allowed raises; then nothing changes.

Rules that must hold:
- Only `identity` may act. Every decision compares producer id and epoch, never the time.
- An open transaction is ended before its id gets a new producer. InitProducerId answers ConcurrentTransactions until
  then. The markers carry the higher epoch, so that the old producer is fenced on every partition, too.
- With `bump` (EndTxn 5, transaction.version 2) each transaction has its own epoch: a late batch of an old transaction
  cannot join the next one (KIP-890).
- A producer id without epochs left is replaced by `spare_producer_id`; the decision then says that it was used.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidemill.model.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
)
from tidemill.model.topics import TopicPartition
from tidemill.transactions.core.state import (
    EPOCH_LAST_GIVEN,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    Transaction,
    TransactionStatus,
)

NAME_LENGTH_MAX = 4_096
"""The longest transactional id in characters, as for groups; a journal string has at most 32,767 bytes."""


class Decision(NamedTuple):
    """The result of a decision."""

    change: Transaction | None
    identity: ProducerIdAndEpoch = NO_PRODUCER
    error: KafkaError | None = None

    def uses(self, producer_id: int) -> bool:
        """Whether the change uses this producer id."""
        change = self.change
        return change is not None and producer_id in {change.identity.producer_id, change.next_producer_id}


@dataclass(frozen=True, slots=True)
class InitProducer:
    """A request for an identity. `given` is the producer's current one (KIP-360), `NO_PRODUCER` for a new instance."""

    transactional_id: str
    timeout_ms: int
    given: ProducerIdAndEpoch = NO_PRODUCER

    def check(self, timeout_ms_max: int) -> None:
        """Reject values that are never valid."""
        if not 0 < len(self.transactional_id) <= NAME_LENGTH_MAX:
            raise InvalidRequest(f"the transactional id must have 1 to {NAME_LENGTH_MAX} characters")
        if not 0 < self.timeout_ms <= timeout_ms_max:
            raise InvalidTransactionTimeout(
                f"transaction.timeout.ms is {self.timeout_ms}; it must be 1 to {timeout_ms_max}"
            )
        if (self.given.producer_id == NO_PRODUCER_ID) != (self.given.epoch == NO_EPOCH):
            raise InvalidRequest("a producer id and its epoch must be sent together or not at all")


def init_producer(known: Transaction | None, request: InitProducer, *, spare_producer_id: int, now_ms: int) -> Decision:
    """Give an identity that fences all earlier ones; an open transaction is aborted first."""
    if known is None:
        first = ProducerIdAndEpoch(spare_producer_id, 0)
        fresh = Transaction(request.transactional_id, first, timeout_ms=request.timeout_ms, updated_ms=now_ms)
        return Decision(fresh, first)
    repeated = known.repeats(request.given)
    if request.given not in {NO_PRODUCER, known.identity} and not repeated:
        raise ProducerFenced
    if known.state.preparing:
        raise ConcurrentTransactions
    if known.state is TransactionStatus.ONGOING:
        if repeated:  # a delayed copy of an old request: its sender has a newer identity
            raise ProducerFenced
        return Decision(_abort_and_fence(known, request.given, now_ms), error=ConcurrentTransactions())
    if repeated and known.identity.epoch <= EPOCH_LAST_GIVEN:
        return Decision(None, known.identity)
    return _next_identity(known, request, spare_producer_id, now_ms)


def add_partitions(
    known: Transaction | None, producer: ProducerIdAndEpoch, partitions: AbstractSet[TopicPartition], now_ms: int
) -> Decision:
    """Add these partitions to the transaction; start one if none is open."""
    known = _acting(known, producer)
    if known.state.preparing:
        raise ConcurrentTransactions
    if known.state is TransactionStatus.ONGOING and partitions <= known.partitions:
        return Decision(None, known.identity)
    return Decision(known.begin_or_grow(frozenset(partitions), now_ms), known.identity)


def check_partition(known: Transaction | None, producer: ProducerIdAndEpoch, partition: TopicPartition) -> None:
    """Reject a write to a partition that is not in the producer's open transaction (KIP-890, first part)."""
    known = _acting(known, producer)
    if known.state.preparing:
        raise ConcurrentTransactions
    if known.state is not TransactionStatus.ONGOING or partition not in known.partitions:
        raise InvalidTxnState(f"partition {partition} is not in the open transaction of {known.transactional_id!r}")


def end_transaction(
    known: Transaction | None,
    producer: ProducerIdAndEpoch,
    *,
    commit: bool,
    bump: bool,
    spare_producer_id: int,
    now_ms: int,
) -> Decision:
    """Fix the outcome of the open transaction. Repeating it succeeds; the opposite outcome is an error."""
    if bump:
        return _end_with_bump(known, producer, commit, spare_producer_id, now_ms)
    known = _acting(known, producer)
    if known.state is TransactionStatus.ONGOING:
        return Decision(_prepare(known, commit, now_ms), known.identity)
    if known.state is _complete_state(commit):
        return Decision(None, known.identity)
    raise _wrong_end(known, commit)


def complete(known: Transaction, now_ms: int) -> Transaction:
    """Complete the transaction after all markers are written; a pending producer id takes effect."""
    return replace(
        known,
        identity=known.settled,
        next_producer_id=NO_PRODUCER_ID,
        state=_complete_state(known.commits),
        partitions=frozenset(),
        started_ms=-1,
        updated_ms=now_ms,
    )


def time_out(known: Transaction, now_ms: int) -> Decision:
    """Abort an open transaction that timed out (`TransactionTable.late`), and fence its producer."""
    return Decision(_abort_and_fence(known, NO_PRODUCER, now_ms), known.identity)


def forgettable(known: Transaction, now_ms: int, expiry_ms: int) -> bool:
    """Whether the id was idle for so long that it may be deleted."""
    resting = known.state in {
        TransactionStatus.EMPTY,
        TransactionStatus.COMPLETE_COMMIT,
        TransactionStatus.COMPLETE_ABORT,
    }
    return resting and now_ms - known.updated_ms >= expiry_ms


def _acting(known: Transaction | None, producer: ProducerIdAndEpoch) -> Transaction:
    if known is None or known.identity.producer_id != producer.producer_id:
        raise InvalidProducerIdMapping
    if known.identity.epoch != producer.epoch:
        raise ProducerFenced
    return known


def _next_identity(known: Transaction, request: InitProducer, spare_producer_id: int, now_ms: int) -> Decision:
    producer_id, epoch = known.identity
    identity = (
        ProducerIdAndEpoch(spare_producer_id, 0) if known.exhausted else ProducerIdAndEpoch(producer_id, epoch + 1)
    )
    change = replace(
        known,
        identity=identity,
        last=request.given,
        timeout_ms=request.timeout_ms,
        state=TransactionStatus.EMPTY,
        partitions=frozenset(),
        started_ms=-1,
        updated_ms=now_ms,
    )
    return Decision(change, identity)


def _abort_and_fence(known: Transaction, retrier: ProducerIdAndEpoch, now_ms: int) -> Transaction:
    """Abort under an epoch that no producer holds. `retrier` asked for a bump itself and may repeat its request."""
    producer_id, epoch = known.identity
    fence = ProducerIdAndEpoch(producer_id, min(epoch + 1, EPOCH_MAX))
    return replace(known, identity=fence, last=retrier, state=TransactionStatus.PREPARE_ABORT, updated_ms=now_ms)


def _prepare(known: Transaction, commit: bool, now_ms: int) -> Transaction:
    state = TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT
    return replace(known, state=state, client_version=0, updated_ms=now_ms)


def _end_with_bump(
    known: Transaction | None, producer: ProducerIdAndEpoch, commit: bool, spare_producer_id: int, now_ms: int
) -> Decision:
    if known is not None and known.repeats(producer):
        return _repeated_end(known, commit)
    known = _acting(known, producer)
    if known.state.preparing:
        raise ConcurrentTransactions
    # KIP-890: an abort always gives a new epoch, even if no partition was written. So late batches of a failed
    # transaction cannot do harm.
    if known.state is not TransactionStatus.ONGOING and commit:
        raise _wrong_end(known, commit)
    change = replace(
        _prepare(known, commit, now_ms),
        identity=ProducerIdAndEpoch(producer.producer_id, min(producer.epoch + 1, EPOCH_MAX)),
        last=producer,
        next_producer_id=spare_producer_id if known.exhausted else NO_PRODUCER_ID,
        client_version=2,
    )
    return Decision(change, change.settled)


def _repeated_end(known: Transaction, commit: bool) -> Decision:
    """Answer a repeated EndTxn from before its own bump. If InitProducerId made the bump, the producer is a zombie."""
    if known.state is TransactionStatus.EMPTY or known.state is TransactionStatus.ONGOING:
        raise ProducerFenced
    if known.state is _complete_state(commit):
        return Decision(None, known.identity)
    raise _wrong_end(known, commit)


def _complete_state(commit: bool) -> TransactionStatus:
    return TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT


def _wrong_end(known: Transaction, commit: bool) -> KafkaError:
    if known.state is (TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT):
        return ConcurrentTransactions()
    action = "commit" if commit else "abort"
    return InvalidTxnState(
        f"cannot {action} the transaction of {known.transactional_id!r} in state {known.state.title}"
    )
