"""The table of transactional ids: when transactions that were read at start time out, and what may be asked for."""

from dataclasses import replace

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


def test_a_record_of_another_kind_changes_nothing() -> None:
    table = TransactionTable()
    table.replay(b"\0\x09another", b"value", 0)
    assert len(table) == 0


def test_a_deleted_id_is_forgotten_with_its_timeout() -> None:
    table = TransactionTable()
    table.replay(write_key("a"), write_value(OPEN), 0)
    table.replay(write_key("a"), None, 0)
    assert (list(table), table.get("a"), table.late(10**9)) == ([], None, [])


def test_a_later_record_of_an_open_transaction_does_not_extend_its_time() -> None:
    table = TransactionTable()
    table.replay(write_key("a"), write_value(OPEN), 100)
    table.replay(write_key("a"), write_value(OPEN), 50_000)
    assert table.late(60_100) == []
    assert table.late(60_101) == ["a"]


def test_a_decided_transaction_is_unfinished_until_it_is_complete() -> None:
    table = TransactionTable()
    table.replay(write_key("a"), write_value(OPEN), 0)
    assert table.unfinished() == []
    table.replay(write_key("a"), write_value(replace(OPEN, state=TransactionStatus.PREPARE_COMMIT)), 0)
    assert (table.unfinished(), table.late(10**9)) == (["a"], [])
    table.replay(write_key("a"), write_value(replace(OPEN, state=TransactionStatus.COMPLETE_COMMIT)), 0)
    assert table.unfinished() == []


def test_ids_of_another_coordinator_are_dropped() -> None:
    table = TransactionTable()
    preparing = TransactionStatus.PREPARE_ABORT
    for name, state in (("a", OPEN.state), ("b", preparing), ("c", OPEN.state), ("d", preparing)):
        table.replay(write_key(name), write_value(replace(OPEN, transactional_id=name, state=state)), 0)
    table.drop(lambda name: name in {"a", "b"})
    assert [each.transactional_id for each in table] == ["c", "d"]
    assert (table.late(10**9), table.unfinished()) == (["c"], ["d"])


def test_transactions_are_selected_by_every_filter() -> None:
    table = TransactionTable()
    other = replace(OPEN, transactional_id="b", identity=ProducerIdAndEpoch(8, 0), started_ms=6_000)
    idle = replace(OPEN, transactional_id="c", state=TransactionStatus.COMPLETE_ABORT, started_ms=-1)
    for each in (OPEN, other, idle):
        table.replay(write_key(each.transactional_id), write_value(each), 0)

    def selected(states: set[str], producer_ids: set[int], older_ms: int) -> list[str]:
        found = table.select(states=states, producer_ids=producer_ids, older_ms=older_ms, now_ms=10_000)
        return [each.transactional_id for each in found]

    assert selected(set(), set(), -1) == ["a", "b", "c"]
    assert selected({OPEN.state.title}, set(), -1) == ["a", "b"]
    assert selected(set(), {8}, -1) == ["b"]
    assert selected({OPEN.state.title}, {7, 8}, 4_000) == ["a"]
    assert selected(set(), set(), 3_999) == ["a", "b"]
    assert selected(set(), set(), 5_000) == []
    assert selected(set(), set(), 0) == ["a", "b"], "a transaction that has not started has no age"


def test_a_transaction_that_started_at_the_beginning_of_time_has_an_age() -> None:
    table = TransactionTable()
    table.replay(write_key("a"), write_value(replace(OPEN, started_ms=0)), 0)
    assert len(table.select(states=set(), producer_ids=set(), older_ms=99, now_ms=100)) == 1
    assert not table.select(states=set(), producer_ids=set(), older_ms=100, now_ms=100)
