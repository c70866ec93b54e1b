"""Decisions about transactions that leave the journal alone, and the times of a transaction."""

from tidemill.model.topics import TopicPartition
from tidemill.transactions.core import rules
from tidemill.transactions.core.state import ProducerIdAndEpoch, Transaction, TransactionStatus

OWNER = ProducerIdAndEpoch(7, 3)
A, B = TopicPartition("a", 0), TopicPartition("b", 0)
ONGOING = Transaction(
    "tx",
    OWNER,
    timeout_ms=60_000,
    updated_ms=5,
    state=TransactionStatus.ONGOING,
    partitions=frozenset({A}),
    started_ms=4,
    client_version=2,
)


def test_partitions_that_are_in_the_transaction_need_no_entry() -> None:
    assert rules.add_partitions(ONGOING, OWNER, {A}, 9).change is None
    assert rules.add_partitions(ONGOING, OWNER, set(), 9).change is None
    grown = rules.add_partitions(ONGOING, OWNER, {A, B}, 9).change
    assert grown is not None
    assert (grown.partitions, grown.started_ms, grown.updated_ms) == (frozenset({A, B}), 4, 9)
