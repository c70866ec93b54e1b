"""The window of five, epochs, wrap, transactions, undo and expiry of idempotent producers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.model.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequence
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import BatchHeader, read_header
from tidemill.streams.core.producers import EXPIRY_MS, SEQUENCE_MAX, Producers, SentBatch, follows

NOW = 1_000


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, offset: int = 0, producer: int = 1, transactional: bool = False
) -> BatchHeader:
    records = [NewRecord(b"k", b"v", (), NOW)] * count
    return read_header(
        build_batch(
            records,
            base_offset=offset,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def producers_with(*headers: BatchHeader) -> Producers:
    producers = Producers()
    for one in headers:
        assert producers.judge(one) is None
        producers.apply(one, NOW)
    return producers


def test_the_last_five_batches_are_known() -> None:
    producers = producers_with(*(header(number, offset=number) for number in range(7)))
    for number in range(2, 7):
        assert producers.judge(header(number)) == SentBatch(number, number, number, -1)
    assert isinstance(producers.judge(header(1)), OutOfOrderSequence)
    assert isinstance(producers.judge(header(6, 2)), OutOfOrderSequence)
    assert producers.judge(header(7)) is None


def test_sequences_wrap() -> None:
    producers = producers_with(header(SEQUENCE_MAX - 1, 3))
    assert producers.entries()[1].last_sequence == 0
    assert producers.judge(header(1)) is None
    assert producers.judge(header(SEQUENCE_MAX - 1, 3)) is not None


@given(st.integers(0, SEQUENCE_MAX), st.integers(0, SEQUENCE_MAX))
@settings(max_examples=100, deadline=None)
def test_only_the_next_sequence_follows(last: int, first: int) -> None:
    assert follows(last, first) == ((last + 1) % 2**31 == first)


def test_epochs_fence_and_start_at_zero() -> None:
    producers = producers_with(header(5, epoch=3))
    assert isinstance(producers.judge(header(6, epoch=2)), InvalidProducerEpoch)
    assert isinstance(producers.judge(header(6, epoch=4)), OutOfOrderSequence)
    producers.apply(header(0, epoch=4), NOW)
    assert isinstance(producers.judge(header(6, epoch=3)), InvalidProducerEpoch)
    assert producers.judge(header(1, epoch=4)) is None


def test_own_batches_without_sequence_are_judged_by_epoch_only() -> None:
    producers = producers_with(header(0, epoch=1, transactional=True))
    own = header(-1, epoch=1, offset=9, transactional=True)
    assert producers.judge(own) is None
    producers.apply(own, NOW)
    assert producers.entries()[1].last_sequence == 0
    assert isinstance(producers.judge(header(-1, epoch=0)), InvalidProducerEpoch)


def test_a_transaction_is_open_until_its_marker() -> None:
    producers = producers_with(header(0, offset=10, transactional=True), header(1, offset=20, transactional=True))
    assert (producers.open_offset(1), producers.first_open_offset()) == (10, 10)
    assert isinstance(producers.judge(header(2)), InvalidTxnState)
    producers.apply_marker(header(-1, offset=30), 2, NOW)
    assert (producers.open_offset(1), producers.first_open_offset()) == (None, None)
    assert producers.judge(header(2)) is None, "the sequence goes on after a marker of the same epoch"
    assert producers.judge_marker(1, 0, 1) is not None
    assert producers.judge_marker(1, 0, 2) is None


def test_an_applied_change_can_be_undone() -> None:
    producers = producers_with(header(0, transactional=True, offset=4))
    saved = producers.save()
    before = producers.apply_marker(header(-1, offset=5), 0, NOW)
    producers.restore(1, before)
    assert (producers.save(), producers.first_open_offset()) == (saved, 4)
    fresh = producers.apply(header(0, producer=2, transactional=True), NOW)
    producers.restore(2, fresh)
    assert (producers.save(), producers.first_open_offset()) == (saved, 4)


def test_saved_state_is_the_state() -> None:
    producers = producers_with(*(header(n, offset=n, transactional=True) for n in range(6)), header(3, producer=2))
    other = Producers()
    other.load(producers.save())
    assert other.save() == producers.save()
    assert other.snapshots() == producers.snapshots()
    assert other.first_open_offset() == 0


def test_silent_producers_expire_unless_their_transaction_is_open() -> None:
    producers = producers_with(header(0), header(0, producer=2, transactional=True))
    assert producers.expire(NOW + EXPIRY_MS - 1) == 0
    assert producers.expire(NOW + EXPIRY_MS) == 1
    assert [one.producer_id for one in producers.snapshots()] == [2]


@pytest.mark.parametrize("seed", range(3))
def test_replay_ends_where_live_traffic_ended(seed: int) -> None:
    from random import Random

    random = Random(seed)
    live, sent, following = Producers(), [], {1: 0, 2: 0, 3: 0}
    for offset in range(60):
        producer = random.choice([1, 2, 3])
        one = header(following[producer], 2, offset=offset, producer=producer, transactional=producer == 3)
        following[producer] += 2
        live.apply(one, NOW)
        sent.append(one)
    replayed = Producers()
    for one in sent:
        replayed.apply(one, NOW)
    assert replayed.save() == live.save()
