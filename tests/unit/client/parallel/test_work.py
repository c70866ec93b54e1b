from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.client.parallel.record import ParallelRecord
from tidemill.client.parallel.work import Ordering, Work
from tidemill.client.parallel.work_queue import WorkQueue
from tidemill.model.topics import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Item(NamedTuple):
    place: TopicPartition
    offset: int
    key: bytes | None


def filled(ordering: Ordering, *items: Item) -> Work[Item]:
    work: Work[Item] = Work(ordering)
    for item in items:
        work.add(item)
    return work


def test_one_record_of_a_key_at_a_time() -> None:
    first, second, other = Item(P0, 0, b"a"), Item(P0, 1, b"a"), Item(P0, 2, b"b")
    work = filled(Ordering.KEY, first, second, other)
    assert [work.take(), work.take(), work.take()] == [first, other, None]
    work.finished(first)
    assert work.take() == second


def test_one_record_of_a_partition_at_a_time() -> None:
    work = filled(Ordering.PARTITION, Item(P0, 0, b"a"), Item(P0, 1, b"b"), Item(P1, 0, None))
    assert [work.take(), work.take(), work.take()] == [Item(P0, 0, b"a"), Item(P1, 0, None), None]


def test_records_without_a_key_are_free() -> None:
    work = filled(Ordering.KEY, Item(P0, 0, None), Item(P0, 1, None))
    assert work.take() is not None
    assert work.take() is not None


def test_partitions_take_turns() -> None:
    items = [Item(P0, offset, None) for offset in range(4)] + [Item(P1, offset, None) for offset in range(2)]
    work = filled(Ordering.UNORDERED, *items)
    taken = [work.take() for _ in items]
    assert [item.place for item in taken if item] == [P0, P1, P0, P1, P0, P0]


def test_a_retry_sleeps_without_holding_others_up() -> None:
    bad, behind, other = Item(P0, 0, b"a"), Item(P0, 1, b"a"), Item(P0, 2, b"b")
    work = filled(Ordering.KEY, bad, behind, other)
    assert work.take() == bad
    work.retry(bad, due_ms=100)
    assert work.take() == other
    assert work.take() is None
    assert work.next_due_ms() == 100
    work.wake(99)
    assert work.take() is None
    work.wake(100)
    assert work.take() == bad
    work.finished(bad)
    assert work.take() == behind


def test_a_leaving_partition_hands_out_nothing_more() -> None:
    first, second = Item(P0, 0, b"a"), Item(P0, 1, b"a")
    work = filled(Ordering.KEY, first, second, Item(P1, 0, None))
    assert work.take() == first
    assert work.idle(P0) == 1
    work.finished(first)
    assert work.idle(P0) == 0
    assert work.take() == Item(P1, 0, None)
    assert work.take() is None
    work.drop(P0)
    work.add(second)
    assert work.take() == second


def test_a_lost_partition_is_forgotten() -> None:
    work = filled(Ordering.KEY, Item(P0, 0, b"a"), Item(P0, 1, b"a"), Item(P0, 2, b"b"), Item(P1, 0, b"a"))
    first = work.take()
    assert first == Item(P0, 0, b"a")
    assert work.take() == Item(P1, 0, b"a")
    asleep = work.take()
    assert asleep is not None
    work.retry(asleep, due_ms=5)
    work.drop(P0)
    assert (work.waiting, work.in_flight, work.next_due_ms()) == (0, 1, None)
    work.add(Item(P0, 0, b"a"))
    assert work.take() == Item(P0, 0, b"a"), "the partition came back and begins again"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([P0, P1]), st.sampled_from([b"a", b"b", b"c", None])), max_size=60), st.randoms()
)
def test_every_record_once_and_in_the_order_of_its_key(
    plan: list[tuple[TopicPartition, bytes | None]], draw: object
) -> None:
    import random

    assert isinstance(draw, random.Random)
    items = [Item(place, offset, key) for offset, (place, key) in enumerate(plan)]
    work = filled(Ordering.KEY, *items)
    running: list[Item] = []
    handled: list[Item] = []
    now = 0
    while len(handled) < len(items):
        item = work.take()
        if item is not None:
            assert item.key is None or all((each.place, each.key) != (item.place, item.key) for each in running)
            running.append(item)
        if running and (item is None or draw.random() < 0.5):
            done = running.pop(draw.randrange(len(running)))
            if draw.random() < 0.3:
                work.retry(done, now + draw.randrange(5))
            else:
                work.finished(done)
                handled.append(done)
        now += 1
        work.wake(now)
    assert {each.offset for each in handled} == set(range(len(items)))
    for place in (P0, P1):
        for key in (b"a", b"b", b"c"):
            offsets = [each.offset for each in handled if (each.place, each.key) == (place, key)]
            assert offsets == sorted(offsets)


@pytest.mark.parametrize("tracking", ["partition", "sequence"])
def test_a_partition_that_comes_back_begins_where_it_is_then(tracking: str) -> None:
    queue = WorkQueue(Ordering.KEY, tracking)
    queue.assign(P0)
    queue.put([ParallelRecord("orders", 0, offset, None, b"", (), 0) for offset in (5, 6)])
    assert queue.take() is not None
    queue.unassign(P0)
    queue.assign(P0)
    queue.put([ParallelRecord("orders", 0, 2, None, b"", (), 0)])
    again = queue.take()
    assert again is not None
    assert again.offset == 2
    queue.finished(again)
    [(place, (committed, _))] = queue.commits(4_096).items()
    assert (place, committed) == (P0, 3), "what was received before is with another member"
