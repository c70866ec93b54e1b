"""The table of transactional ids: when transactions that were read at start time out, and what may be asked for."""

import pytest

from tidemill.model.errors import InvalidRequest, InvalidTransactionTimeout
from tidemill.transactions.core.records import write_key, write_value
from tidemill.transactions.core.rules import InitProducer
from tidemill.transactions.core.state import ProducerIdAndEpoch, Transaction, TransactionStatus
from tidemill.transactions.core.table import TransactionTable

OPEN = Transaction(
    "a",
    ProducerIdAndEpoch(7, 0),
    timeout_ms=60_000,
    updated_ms=5_000,
    state=TransactionStatus.ONGOING,
    started_ms=5_000,
)


@pytest.mark.parametrize(
    ("now_ms", "left_ms"),
    [(5_000, 60_000), (64_999, 1), (65_000, 0), (90_000, 0), (1_000, 60_000)],
    ids=["just started", "nearly over", "over", "long over", "wall clock set back"],
)
def test_a_transaction_read_at_start_has_what_is_left_of_its_time(now_ms: int, left_ms: int) -> None:
    table = TransactionTable()
    table.replay(write_key("a"), write_value(OPEN), 100, now_ms)
    assert table.late(100 + left_ms) == []
    assert not table.is_late("a", 100 + left_ms)
    assert table.late(101 + left_ms) == ["a"]
    assert table.is_late("a", 101 + left_ms)


@pytest.mark.parametrize("timeout_ms", [1, 900_000])
def test_the_first_and_the_last_timeout_are_allowed(timeout_ms: int) -> None:
    InitProducer("a", timeout_ms).check(900_000)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_a_timeout_outside_of_the_limits_is_refused(timeout_ms: int) -> None:
    with pytest.raises(InvalidTransactionTimeout, match="must be 1 to 900000"):
        InitProducer("a", timeout_ms).check(900_000)


def test_a_producer_id_without_an_epoch_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        InitProducer("a", 1, ProducerIdAndEpoch(7, -1)).check(1)
    with pytest.raises(InvalidRequest):
        InitProducer("a", 1, ProducerIdAndEpoch(-1, 7)).check(1)
