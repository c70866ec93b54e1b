"""The stored state of a share partition, and its records in a compacted topic."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.model.errors import FencedLeaderEpoch, FencedStateEpoch
from tidemill.shares.core.durable_state import NO_START, DurableState, ShareKey, StateWrite, readable_batches
from tidemill.shares.core.record_ranges import DeliveryState
from tidemill.shares.core.share_partition import StateBatch
from tidemill.shares.core.state_records import decode_record, encode_write, snapshot_key, update_key

KEY = ShareKey("größe:mailers", UUID(int=7), 3)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
STATES = st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED])


def write(start: int, *batches: StateBatch, leader: int = 0, epoch: int = 0) -> StateWrite:
    return StateWrite(epoch, leader, start, batches)


def test_the_start_moves_over_what_is_done() -> None:
    state = DurableState(0, 10)
    state.apply(write(10, StateBatch(12, 14, ACKNOWLEDGED, 1), StateBatch(15, 15, AVAILABLE, 2)))
    assert (state.start_offset, state.finished) == (10, 3)
    state.apply(write(10, StateBatch(10, 11, ARCHIVED, 5)))
    assert (state.start_offset, state.finished) == (15, 0)
    assert state.batches() == (StateBatch(15, 15, AVAILABLE, 2),)


def test_the_start_does_not_go_back() -> None:
    state = DurableState(0, NO_START)
    state.apply(write(20))
    state.apply(write(15, StateBatch(15, 22, ACKNOWLEDGED, 1)))
    assert (state.start_offset, state.batches()) == (23, ())


def test_replaced_leaders_and_states_are_fenced() -> None:
    state = DurableState(4, 0, 7)
    with pytest.raises(FencedLeaderEpoch):
        state.check(write(0, leader=6, epoch=4))
    with pytest.raises(FencedStateEpoch):
        state.check(write(0, leader=7, epoch=3))
    state.check(write(0, leader=8, epoch=4))


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9), STATES, st.integers(0, 5)), max_size=20),
    st.integers(NO_START, 30),
)
@settings(max_examples=50, deadline=None)
def test_a_snapshot_is_the_same_as_its_updates(rows: list[tuple[int, int, DeliveryState, int]], start: int) -> None:
    state, known = DurableState(0, 0), dict[int, tuple[DeliveryState, int]]()
    for first, size, kind, count in rows:
        state.apply(write(start, StateBatch(first, first + size, kind, count)))
        known |= {offset: (kind, count) for offset in range(first, first + size + 1) if offset >= state.start_offset}
    copy = DurableState(0, state.start_offset)
    copy.apply(write(state.start_offset, *state.batches()))
    assert (copy.start_offset, copy.batches()) == (state.start_offset, state.batches())
    for batch in state.batches():
        for offset in range(batch.first, batch.last + 1):
            assert known[offset][0] == batch.state


@pytest.mark.parametrize("key", [snapshot_key(KEY), update_key(KEY, 5)])
def test_records_are_read_as_written(key: bytes) -> None:
    stored = write(5, StateBatch(5, 9, AVAILABLE, 3), StateBatch(10, 1 << 40, ARCHIVED, 1), leader=2, epoch=1)
    record = decode_record(key, encode_write(stored))
    assert (record.key, record.write, record.is_snapshot) == (KEY, stored, key == snapshot_key(KEY))
    assert decode_record(key, None).write is None


@pytest.mark.parametrize("cut", [0, 5, 21, 30])
def test_a_truncated_record_is_an_error(cut: int) -> None:
    value = encode_write(write(5, StateBatch(5, 9, AVAILABLE, 3)))
    with pytest.raises(ValueError, match=r"trunc|fit"):
        decode_record(snapshot_key(KEY), value[:cut])
    with pytest.raises(ValueError, match=r"trunc|kind"):
        decode_record(b"\x00\x09" + snapshot_key(KEY)[2 : cut + 2], value)


@pytest.mark.parametrize("row", [(0, 1, 1, 0), (0, 1, 5, 0), (3, 2, 0, 0), (-1, 2, 0, 0), (0, 1, 9, 0)])
def test_a_batch_that_cannot_be_stored_is_an_error(row: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        readable_batches([row])
