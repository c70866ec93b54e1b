"""What the leader decides: offsets, epochs, aborted transactions, and how it takes a decision back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.model.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from tidemill.records.build import NewRecord, build_batch, end_marker
from tidemill.records.header import BatchHeader, read_header
from tidemill.streams.core.aborted import AbortedIndex, AbortedRange, AbortedTransaction
from tidemill.streams.core.epochs import Epochs
from tidemill.streams.core.leader import Accepted, ControlMarker, Duplicate, Leader, Refused
from tidemill.streams.core.waiters import Waiters

NOW = 5


def data(offset: int, count: int = 1, sequence: int = 0, producer: int = 1) -> BatchHeader:
    records = [NewRecord(None, b"v", (), NOW)] * count
    return read_header(
        build_batch(
            records,
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
    )


def marker(offset: int, producer: int = 1) -> BatchHeader:
    return read_header(end_marker(producer, 0, False, NOW))._replace(base_offset=offset)


def test_offsets_grow_by_the_records_of_a_batch() -> None:
    leader = Leader(epoch=4, end_offset=10)
    assert leader.judge(data(0, 3)) == Accepted(10)
    leader.accept(data(10, 3), NOW)
    assert leader.end_offset == 13
    assert isinstance(leader.judge(data(0, 3)), Duplicate)
    assert isinstance(leader.judge(data(0, 1, sequence=9)), Refused)


def test_an_undone_abort_leaves_no_trace() -> None:
    leader = Leader(epoch=0)
    leader.accept(data(0, 2), NOW)
    state = (leader.save(), leader.end_offset)
    undo = leader.accept(marker(2), NOW, ControlMarker(commit=False, coordinator_epoch=0))
    assert leader.aborted.overlapping(0, 10) == [AbortedTransaction(1, 0)]
    assert leader.stable_offset(3) == 3
    leader.undo(undo)
    assert (leader.save(), leader.end_offset) == state
    assert leader.stable_offset(2) == 0


def test_saved_state_is_the_state() -> None:
    leader = Leader(epoch=2)
    leader.accept(data(0, 2)._replace(leader_epoch=2), NOW)
    leader.accept(marker(2), NOW, ControlMarker(commit=False, coordinator_epoch=7))
    leader.clean_until = 1
    other = Leader(epoch=2)
    other.load(leader.save())
    assert other.save() == leader.save()


def test_a_take_over_replaces_everything() -> None:
    """A transaction that ended beyond the new end would hold the last stable offset back forever."""
    leader, other = Leader(epoch=1), Leader(epoch=1)
    leader.accept(data(0, 2), NOW)
    leader.accept(marker(2), NOW, ControlMarker(commit=True, coordinator_epoch=0))
    leader.clean_until = 3
    other.accept(data(0, 1, producer=2), NOW)
    leader.take_over(other)
    assert (leader.end_offset, leader.clean_until, leader.save()) == (1, 1, {**other.save(), "clean_until": 1})
    leader.accept(marker(1, producer=2), NOW, ControlMarker(commit=True, coordinator_epoch=0))
    assert [leader.stable_offset(at) for at in (1, 2)] == [0, 2]


def test_a_take_over_keeps_transactions_whose_marker_is_not_committed() -> None:
    leader, other = Leader(epoch=1), Leader(epoch=1)
    other.accept(data(0, 2), NOW)
    other.accept(marker(2), NOW, ControlMarker(commit=True, coordinator_epoch=0))
    leader.take_over(other)
    assert [leader.stable_offset(at) for at in (2, 3)] == [0, 3]


def test_epochs_are_checked() -> None:
    leader = Leader(epoch=3)
    leader.check_epoch(-1)
    leader.check_epoch(3)
    with pytest.raises(FencedLeaderEpoch):
        leader.check_epoch(2)
    with pytest.raises(UnknownLeaderEpoch):
        leader.check_epoch(4)


def test_the_end_of_an_epoch_is_where_the_next_begins() -> None:
    epochs = Epochs([(1, 0), (3, 10), (3, 12), (2, 13), (7, 20)])
    answers = [epochs.end_of(epoch, 30) for epoch in (-1, 0, 1, 2, 3, 6, 7, 8)]
    assert answers == [(-1, -1), (-1, -1), (1, 10), (1, 10), (3, 20), (3, 20), (7, 30), (7, 30)]
    epochs.trim(12)
    assert epochs.save() == [[3, 12], [7, 20]]
    epochs.truncate(20)
    assert (epochs.save(), epochs.last) == ([[3, 12]], 3)
    epochs.truncate(0)
    assert (epochs.save(), epochs.last) == ([], -1)
    epochs.trim(5)
    assert epochs.save() == [], "an empty cache stays empty"
    epochs.assign(8, 7)
    epochs.trim(7)
    assert epochs.save() == [[8, 7]]
    epochs.trim(5)
    assert epochs.save() == [[8, 7]], "an epoch that begins behind the new start stays where it is"


def test_aborted_transactions_of_a_range() -> None:
    index = AbortedIndex()
    index.add(1, 0, 5, 3)
    index.add(2, 3, 9, 10)
    index.add(1, 10, 12, 13)
    everything = [AbortedTransaction(1, 0), AbortedTransaction(2, 3), AbortedTransaction(1, 10)]
    assert index.overlapping(0, 100) == everything
    assert index.overlapping(6, 10) == everything[1:2]
    assert index.overlapping(0, 1) == everything[:1]
    assert index.overlapping(13, 99) == []
    index.trim(6)
    assert index.ranges() == [AbortedRange(2, 3, 9, 10), AbortedRange(1, 10, 12, 13)]
    index.forget([AbortedRange(2, 3, 9, 10)])
    assert AbortedIndex(index.save()).ranges() == [AbortedRange(1, 10, 12, 13)]


def test_waiters_may_leave_and_join_while_they_are_woken() -> None:
    waiters, woken = Waiters(), []

    def first() -> None:
        woken.append("first")
        leave_second()
        waiters.add(lambda: woken.append("third"))

    leave_first = waiters.add(first)
    leave_second = waiters.add(lambda: woken.append("second"))
    waiters.wake()
    leave_first()
    waiters.wake()
    assert woken == ["first", "second", "third"]
    assert len(waiters) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["data", "commit", "abort"]), st.integers(1, 2), st.integers(0, 1)),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=60)
def test_an_undone_batch_leaves_the_state_before_it(drawn: list[tuple[str, int, int]]) -> None:
    leader, epoch, sequences = Leader(epoch=0), 0, {1: 0, 2: 0}
    for verb, producer, newer in drawn:
        epoch += newer
        end = leader.end_offset
        before = (leader.save(), end, leader.epochs.last, leader.stable_offset(end))
        if verb == "data":
            batch, control = data(end, 2, sequences[producer], producer), None
        else:
            batch, control = marker(end, producer), ControlMarker(commit=verb == "commit", coordinator_epoch=0)
        batch = batch._replace(leader_epoch=epoch)
        leader.undo(leader.accept(batch, NOW, control))
        assert (leader.save(), leader.end_offset, leader.epochs.last, leader.stable_offset(end)) == before
        leader.accept(batch, NOW, control)
        sequences[producer] += 2 if verb == "data" else 0
    assert leader.epochs.last == epoch
