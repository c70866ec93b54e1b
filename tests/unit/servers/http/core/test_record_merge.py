"""Pages over cursors that hold lists: nothing is lost or there twice, and no more is loaded than needed."""

from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import read_header
from tidemill.servers.http.core.record_merge import merged_page
from tidemill.servers.http.core.record_scan import WORST_TIME, KeptRecord, Outcome, ScanBudget

HEADER = read_header(build_batch([NewRecord(None, None)]))


def kept(partition: int, offset: int, timestamp: int) -> KeptRecord:
    return KeptRecord(partition, HEADER, Outcome.NONE, offset, timestamp, None, 0, None, 0, (), 0, 0)


class ListCursor:
    """A cursor over known times; it loads `step` records at a time."""

    def __init__(self, partition: int, times: list[int], *, step: int, is_backward: bool, bound: int | None) -> None:
        self.partition = partition
        records = [kept(partition, offset, at) for offset, at in enumerate(times)]
        self.left = deque(reversed(records) if is_backward else records)
        self.rows: deque[KeptRecord] = deque()
        worst = -WORST_TIME if is_backward else WORST_TIME
        self.bound = worst if bound is None else bound
        self.is_done = not self.left
        self.was_loaded = False
        self._step = step

    def load(self) -> None:
        self.was_loaded = True
        for _ in range(min(self._step, len(self.left))):
            self.rows.append(self.left.popleft())
        self.is_done = not self.left


def budget(milliseconds: int = 10**9) -> ScanBudget:
    now = iter(range(10**9))
    return ScanBudget(lambda: float(next(now)), records=10**9, size_bytes=10**9, duration_ms=milliseconds)


times = st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=1, max_size=4)


@given(times, st.integers(1, 8), st.integers(1, 5), st.booleans())
def test_pages_have_every_record_once_in_the_order_of_each_partition(
    partitions: list[list[int]], rows: int, step: int, is_backward: bool
) -> None:
    cursors = [
        ListCursor(number, each, step=step, is_backward=is_backward, bound=None)
        for number, each in enumerate(partitions)
    ]
    found: list[KeptRecord] = []
    while page := merged_page(cursors, rows, budget(), is_backward=is_backward):
        assert len(page) <= rows
        found += page
    for number, each in enumerate(partitions):
        offsets = [record.offset for record in found if record.partition == number]
        assert offsets == sorted(range(len(each)), reverse=is_backward)
    if all(each == sorted(each) for each in partitions):
        order = [record.timestamp for record in found]
        assert order == sorted(order, reverse=is_backward)


def test_partitions_with_old_records_are_not_loaded() -> None:
    def cursor(partition: int, at: list[int]) -> Any:
        return ListCursor(partition, at, step=2, is_backward=True, bound=max(at))

    cursors = [cursor(0, [1, 2, 3]), cursor(1, [10, 11, 12]), cursor(2, [4])]
    assert [each.timestamp for each in merged_page(cursors, 3, budget(), is_backward=True)] == [12, 11, 10]
    assert [each.was_loaded for each in cursors] == [False, True, False]


def test_a_spent_budget_ends_the_page_after_one_load() -> None:
    cursors = [ListCursor(number, [1, 2, 3], step=1, is_backward=False, bound=None) for number in range(3)]
    assert merged_page(cursors, 9, budget(0), is_backward=False) == []
    assert [each.was_loaded for each in cursors].count(True) == 1
    assert sum(len(each.rows) for each in cursors) == 1
