"""The producer's buffer: partitions, when batches are sent, and the order that holds for any network."""

from collections import defaultdict
from collections.abc import Callable
from itertools import count
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.client.accumulator import SEQUENCES, Accumulator, Batch, BatchLimits, ProducerState, calls

LIMITS = BatchLimits(linger_ms=100, buffer_records=10, call_records=4, batch_bytes=1_000, delivery_timeout_ms=5_000)


def buffer(partitions: int = 3, *, limits: BatchLimits = LIMITS, idempotent: bool = False) -> Accumulator:
    made = Accumulator(limits, idempotent=idempotent)
    made.grow(partitions)
    return made


def values(batches: list[Batch]) -> list[list[object]]:
    return [[entry.record for entry in batch.entries] for batch in batches]


def test_a_key_decides_by_its_crc_and_others_take_turns() -> None:
    made = buffer()
    assert {made.place(b"ada") for _ in range(5)} == {crc32(b"ada") % 3}
    assert made.place(b"") == 0
    assert sorted(made.place(None) for _ in range(3)) == [0, 1, 2]
    assert made.place(b"ada", 2) == 2
    with pytest.raises(IndexError, match="partition 3 does not exist; the topic has 3"):
        made.place(None, 3)


def test_a_batch_leaves_when_it_is_full_or_old_or_flushed() -> None:
    made = buffer(1)
    made.add(0, "a", 1, None, 0)
    assert made.take(99) == []
    assert made.next_ms(99) == 100
    (batch,) = made.take(100)
    assert (values([batch]), batch.attempts) == ([["a"]], 1)
    for number in range(5):
        made.add(0, number, 1, None, 200)
    assert made.take(200) == []  # one is on its way
    made.done(batch)
    (batch,) = made.take(200)
    assert values([batch]) == [[0, 1, 2, 3]]
    made.done(batch)
    assert made.take(200) == []
    made.flush(200)
    assert values(made.take(200)) == [[4]]


def test_a_full_buffer_leaves_at_once() -> None:
    made = buffer(9)
    for number in range(9):
        made.add(number, number, 1, None, 0)
    assert made.take(0) == []
    made.add(0, "the tenth", 1, None, 0)
    assert len(made.take(0)) == 9


def test_large_records_travel_alone() -> None:
    made = buffer(1)
    for name in ("a", "b", "c"):
        made.add(0, name, 600, None, 0)
    made.flush(0)
    for name in ("a", "b", "c"):
        (batch,) = made.take(0)
        assert values([batch]) == [[name]]
        made.done(batch)


def test_a_retry_sends_the_same_batch_first() -> None:
    made = buffer(1, idempotent=True)
    made.add(0, "a", 1, None, 0)
    assert made.take(500) == []  # no producer id to send it with
    assert made.lacking() == [0]
    made.identify([0], ProducerState(7, 0))
    (batch,) = made.take(500)
    made.add(0, "b", 1, None, 500)
    made.again(batch, 550)
    assert made.undelivered == 2
    assert made.take(549) == []
    assert made.next_ms(500) == 550
    (same,) = made.take(700)
    assert same is batch
    assert (same.identity, same.first_sequence, same.attempts) == (ProducerState(7, 0), 0, 2)
    made.done(same)
    (after,) = made.take(700)
    assert (values([after]), after.first_sequence) == ([["b"]], 1)


def test_a_batch_that_is_given_up_breaks_the_sequence_of_its_partition_only() -> None:
    made = buffer(2, idempotent=True)
    for partition in (0, 1, 0, 1):
        made.add(partition, "x", 1, None, 0)
    made.identify([0, 1], ProducerState(7, 0))
    first, second = made.take(500)
    made.broken(first)
    made.done(second)
    made.add(0, "y", 1, None, 500)
    made.add(1, "y", 1, None, 500)
    assert made.lacking() == [0]
    made.identify([0], ProducerState(8, 0))
    again, after = made.take(600)
    assert (again.identity, again.first_sequence) == (ProducerState(8, 0), 0)
    assert (after.identity, after.first_sequence) == (ProducerState(7, 0), 2)


def test_sequence_numbers_begin_again_behind_the_largest() -> None:
    made = buffer(1, idempotent=True)
    made.identify([0], ProducerState(7, 0))
    made._lanes[0].next_sequence = SEQUENCES - 2
    found = []
    for _ in range(2):
        for number in range(4):
            made.add(0, number, 1, None, 0)
        (batch,) = made.take(100)
        found.append(batch.first_sequence)
        made.done(batch)
    assert found == [SEQUENCES - 2, 2]


def test_records_that_wait_too_long_expire() -> None:
    made = buffer(2, idempotent=True)
    made.add(0, "never sent", 1, "ticket a", 0)
    made.identify([1], ProducerState(7, 0))
    made.add(1, "sent once", 1, "ticket b", 10)
    (batch,) = made.take(200)
    made.again(batch, 9_000)
    assert made.expired(4_999) == []
    assert [entry.ticket for entry in made.expired(5_010)] == ["ticket a", "ticket b"]
    assert made.undelivered == 0
    made.add(1, "next", 1, None, 6_000)
    assert made.lacking() == [1]


def test_calls_are_by_leader_and_bounded() -> None:
    made = buffer(5)
    for number in range(5):
        for _ in range(3):
            made.add(number, number, 1, None, 0)
    found = calls(made.take(0), lambda partition: "ab"[partition % 2], 6)
    assert [(leader, [batch.partition for batch in batches]) for leader, batches in found] == [
        ("a", [0, 2]),
        ("b", [1, 3]),
        ("a", [4]),
    ]


class Network:
    """A broker that keeps what Kafka's does (the next sequence of each producer and partition), and the way to it."""

    def __init__(self, made: Accumulator, draw: Callable[[int, int], int]) -> None:
        self._made = made
        self._draw = draw
        self._following: dict[tuple[int, ProducerState | None], int] = {}
        self._identities = count()
        self._flying: list[Batch] = []
        self.log: dict[int, list[int]] = defaultdict(list)
        self.sent: dict[int, list[int]] = defaultdict(list)
        self.lost: set[int] = set()
        self.now_ms = 0

    def add(self) -> None:
        partition, number = self._draw(0, 1), sum(map(len, self.sent.values()))
        self._made.add(partition, number, 1, None, self.now_ms)
        self.sent[partition].append(number)

    def take(self) -> None:
        self._made.identify(self._made.lacking(), ProducerState(next(self._identities), 0))
        self._flying += self._made.take(self.now_ms)

    def wait(self) -> None:
        self.now_ms += self._draw(0, 300)
        self.lost |= {entry.record for entry in self._made.expired(self.now_ms)}

    def stored(self) -> None:
        for batch in self._one():
            self._arrive(batch)
            self._made.done(batch)

    def answer_lost(self) -> None:
        for batch in self._one():
            self._arrive(batch)
            self._made.again(batch, self.now_ms + self._draw(0, 50))

    def call_lost(self) -> None:
        for batch in self._one():
            self._made.again(batch, self.now_ms + self._draw(0, 50))

    def given_up(self) -> None:
        for batch in self._one():
            self._made.broken(batch)
            self.lost |= {entry.record for entry in batch.entries}

    def heal(self) -> None:
        for _ in range(100):
            while self._flying:
                self.stored()
            self.now_ms += 100
            self.take()

    def _one(self) -> list[Batch]:
        return [self._flying.pop(self._draw(0, len(self._flying) - 1))] if self._flying else []

    def _arrive(self, batch: Batch) -> None:
        key = (batch.partition, batch.identity)
        expected = self._following.get(key, 0)
        if batch.first_sequence == expected:
            self.log[batch.partition] += [entry.record for entry in batch.entries]
            self._following[key] = expected + len(batch.entries)
        else:
            assert batch.first_sequence + len(batch.entries) <= expected, "a hole in the sequence"


@settings(max_examples=200)
@given(st.data())
def test_the_broker_has_each_record_once_and_in_order_despite_lost_requests(data: st.DataObject) -> None:
    made = buffer(2, idempotent=True)
    network = Network(made, lambda low, high: data.draw(st.integers(low, high)))
    happens = [network.add, network.take, network.wait, network.stored, network.answer_lost, network.call_lost]
    for action in data.draw(st.lists(st.sampled_from([*happens, network.given_up]), max_size=60)):
        action()
    network.heal()
    for partition, sent in network.sent.items():
        assert network.log[partition] == sorted(set(network.log[partition])), "twice, or out of order"
        assert set(sent) - set(network.log[partition]) <= network.lost
    assert made.undelivered == 0
