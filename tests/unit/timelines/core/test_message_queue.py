"""The queues of consumers: each order, and what a helping consumer takes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.timelines.core.message import TimedMessage
from tidemill.timelines.core.message_queue import LeaseOrder, MessageQueue, new_queue


def message(seq: int, due_ms: int = 0, scheduled_ms: int | None = None) -> TimedMessage:
    scheduled_ms = due_ms if scheduled_ms is None else scheduled_ms
    return TimedMessage(seq, f"m{seq}", due_ms, scheduled_ms, seq % 7, "", None, 0, 1, 0, 0, None)


def queue_of(order: LeaseOrder, *messages: TimedMessage, seed: int = 1) -> MessageQueue:
    queue = new_queue(order, random.Random(seed).randrange)
    for each in messages:
        queue.add(each)
    return queue


def taken(queue: MessageQueue) -> list[int]:
    return [queue.take().seq for _ in range(len(queue))]


RETURNED = message(1, due_ms=90, scheduled_ms=10)
"""Its lease ended at 90, so it became available after the others."""
WAITING = (message(2, 20), message(3, 30), RETURNED)


def test_by_the_end_of_the_last_lease_a_returned_message_is_behind_those_that_waited() -> None:
    assert taken(queue_of(LeaseOrder.LEASE_END, *WAITING)) == [2, 3, 1]


def test_by_due_time_a_returned_message_keeps_its_place() -> None:
    assert taken(queue_of(LeaseOrder.DUE, *WAITING)) == [1, 2, 3]


def test_the_first_message_is_the_one_that_is_taken_next() -> None:
    for order, first in ((LeaseOrder.LEASE_END, 2), (LeaseOrder.DUE, 1)):
        queue = queue_of(order, *WAITING)
        assert queue.first().seq == queue.take().seq == first


def test_at_random_every_message_comes_once_and_in_no_order() -> None:
    messages = [message(seq, seq) for seq in range(50)]
    orders = {tuple(taken(queue_of(LeaseOrder.RANDOM, *messages, seed=seed))) for seed in range(5)}
    assert len(orders) == 5
    assert all(sorted(order) == list(range(50)) for order in orders)


@pytest.mark.parametrize(("order", "last"), [(LeaseOrder.LEASE_END, 4), (LeaseOrder.DUE, 4), (LeaseOrder.RANDOM, 4)])
def test_a_helper_takes_from_the_far_end(order: LeaseOrder, last: int) -> None:
    queue = queue_of(order, *(message(seq, seq) for seq in range(5)))
    found = queue.take_last(lambda _: True, 16)
    assert found is not None
    assert found.seq == last


@pytest.mark.parametrize("order", list(LeaseOrder))
def test_a_helper_looks_at_a_few_messages_only(order: LeaseOrder) -> None:
    queue = queue_of(order, *(message(seq, seq) for seq in range(50)))
    assert queue.take_last(lambda one: one.seq == 20, 16) is None
    assert len(queue) == 50
    found = queue.take_last(lambda one: one.seq == 40, 16)
    assert found is not None
    assert sorted(one.seq for one in queue) == [seq for seq in range(50) if seq != 40]


@given(
    order=st.sampled_from(LeaseOrder),
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 50)), max_size=60),
)
def test_no_message_is_lost_or_doubled(order: LeaseOrder, steps: list[tuple[int, int, int]]) -> None:
    queue, there, out = queue_of(order), set[int](), set[int]()
    for seq, (step, due_ms, scheduled_ms) in enumerate(steps):
        if step == 0:
            queue.add(message(seq, due_ms, scheduled_ms))
            there.add(seq)
        elif step == 1 and len(queue):
            one = queue.take()
            if order is LeaseOrder.DUE:
                assert all((one.scheduled_ms, one.seq) < (left.scheduled_ms, left.seq) for left in queue)
            out.add(one.seq)
        elif (found := queue.take_last(lambda one: one.seq % 2 == 0, 3)) is not None:
            out.add(found.seq)
    left = [one.seq for one in queue]
    assert len(left) == len(set(left)) == len(queue)
    assert there == out | set(left)
    assert not out & set(left)
