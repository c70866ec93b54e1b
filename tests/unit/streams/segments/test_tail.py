"""The cached tails of logs: copied views, one budget."""

from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import BatchHeader, read_header
from tidemill.streams.segments.tail import RELEASED_MAX, Tail, TailBudget


def header(offset: int, size: int = 100, count: int = 1, time: int = 0) -> BatchHeader:
    records = [NewRecord(None, b"", (), time)] * count
    return read_header(build_batch(records, base_offset=offset))._replace(length=size - 12)


def test_views_that_are_little_of_their_frame_are_copied() -> None:
    tail = Tail(TailBudget())
    frame, other = bytearray(1000), bytearray(1000)
    tail.extend([header(0), header(1)], [memoryview(frame)[:300], memoryview(frame)[300:600]])
    tail.extend([header(2), header(3)], [memoryview(frame)[:300], memoryview(other)[:300]])
    kept = tail.read(0, 4, 10_000, at_least_one=True)
    assert kept is not None
    assert [isinstance(each, memoryview) for each in kept] == [True, True, False, False]


def test_tails_share_a_budget_and_the_oldest_goes_first() -> None:
    budget = TailBudget(limit=1000)
    one, two = Tail(budget), Tail(budget)
    for offset in range(5):
        one.add(header(offset), bytes(100))
        two.add(header(offset), bytes(100))
    assert one.read(0, 5, 10_000, at_least_one=True) == [bytes(100)] * 5
    for offset in range(5, 8):
        two.add(header(offset), bytes(100))
    assert one.read(0, 5, 10_000, at_least_one=True) is None
    assert one.read(2, 5, 10_000, at_least_one=True) == [bytes(100)] * 3
    assert two.read(1, 8, 250, at_least_one=True) == [bytes(100)] * 2
    assert two.read(1, 3, 10_000, at_least_one=True) == [bytes(100)] * 2
    assert two.read(1, 8, 50, at_least_one=True) == [bytes(100)]
    assert two.read(1, 8, 50, at_least_one=False) == []
    one.clear()
    assert one.read(3, 5, 10_000, at_least_one=True) is None
    for offset in range(8, 30):
        two.add(header(offset), bytes(100))
    assert budget.size <= 1000


def test_a_log_that_is_closed_gives_its_bytes_back_at_once() -> None:
    budget = TailBudget()
    kept = Tail(budget)
    kept.add(header(0), bytes(100))
    for _ in range(3 * RELEASED_MAX):
        deleted = Tail(budget)
        deleted.add(header(0), bytes(100))
        deleted.clear()
        assert budget.size == 100
    assert kept.read(0, 1, 10_000, at_least_one=True) == [bytes(100)]
    assert len(budget._kept) <= RELEASED_MAX + 2
