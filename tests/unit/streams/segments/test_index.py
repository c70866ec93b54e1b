"""Index, checkpoint, open files and tail: the small parts that segments are made of."""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import BatchHeader, read_header
from tidemill.streams.segments import checkpoint
from tidemill.streams.segments.checkpoint import Checkpoint, SegmentNote
from tidemill.streams.segments.files import OpenFiles
from tidemill.streams.segments.index import Index, IndexFiles, decode, encode
from tidemill.streams.segments.tail import RELEASED_MAX, Tail, TailBudget
from tidemill.testing.faults import SimDisk


def header(offset: int, size: int = 100, count: int = 1, time: int = 0) -> BatchHeader:
    records = [NewRecord(None, b"", (), time)] * count
    return read_header(build_batch(records, base_offset=offset))._replace(length=size - 12)


def index_of(headers: list[BatchHeader], interval: int) -> tuple[Index, list[int]]:
    index, positions = Index(), []
    for one in headers:
        positions.append(index.size)
        index.add(one, headers[0].base_offset, interval)
    return index, positions


@given(
    st.lists(st.tuples(st.integers(61, 900), st.integers(1, 9), st.integers(0, 99)), min_size=1, max_size=40),
    st.sampled_from([0, 100, 1000, 4096]),
)
@settings(max_examples=100, deadline=None)
def test_the_index_never_points_behind_what_is_sought(batches: list[tuple[int, int, int]], interval: int) -> None:
    headers, offset = [], 1000
    for size, count, time in batches:
        headers.append(header(offset, size, count, time))
        offset += count
    index, positions = index_of(headers, interval)
    for one, position in zip(headers, positions, strict=True):
        relative_offset, found = index.find(one.last_offset - 1000)
        assert headers[positions.index(found)].base_offset == 1000 + relative_offset
        assert found <= position < found + max(interval, 1) + 900
    for time in range(100):
        start = index.relative_offset_before_time(time) + 1000
        first = next((one.base_offset for one in headers if one.max_timestamp >= time), None)
        assert first is None or start <= first


def test_an_index_knows_of_gaps() -> None:
    assert not index_of([header(5), header(6, count=3), header(9)], 0)[0].gaps
    assert index_of([header(5), header(7)], 0)[0].gaps
    late = Index()
    late.add(header(5), 4, 0)
    assert late.gaps


def test_an_index_comes_back_from_its_files_or_not_at_all() -> None:
    index, _ = index_of([header(offset, time=offset % 7) for offset in range(50)], 200)
    files = encode(index)
    again = decode(files, index.size)
    assert again is not None
    assert (again.entries, again.times, again.largest_timestamp) == (index.entries, index.times, 6)
    assert (again.next_offset, again.gaps, again.size) == (50, False, index.size)
    assert decode(files, index.size + 1) is None
    random = Random(3)
    for _ in range(200):
        which, damaged = random.randrange(2), [bytearray(files.offsets), bytearray(files.times)]
        damaged[which][random.randrange(len(damaged[which]))] ^= 1 << random.randrange(8)
        assert decode(IndexFiles(bytes(damaged[0]), bytes(damaged[1])), index.size) is None
    assert decode(IndexFiles(files.offsets[:-3], files.times), index.size) is None
    assert decode(IndexFiles(b"", b""), index.size) is None


def test_a_checkpoint_comes_back_or_not_at_all() -> None:
    one = Checkpoint(
        3, 40, SegmentNote(30, 512, 6, 5), (SegmentNote(0, 900, 7, 1),), {"producers": [[1, 2]]}, cut_to=35
    )
    data = checkpoint.encode(one)
    assert checkpoint.decode(data) == one
    random = Random(4)
    for _ in range(200):
        damaged = bytearray(data)
        damaged[random.randrange(len(damaged) - 1)] ^= 1 << random.randrange(8)
        assert checkpoint.decode(bytes(damaged)) in (None, one), "the CRC may have lost only the case of a letter"
    for cut in range(len(data) - 1):
        assert checkpoint.decode(data[:cut]) is None


def test_b12_a_power_cut_leaves_the_old_checkpoint_or_the_new_one() -> None:
    """The file is flushed before it gets its name: never an empty one, whatever operation is the last."""
    old, new = (Checkpoint(0, end, SegmentNote(0, end, 6, 5), (), {"at": end}) for end in (10, 20))
    seen = set()
    for seed in range(20):
        for stop_after in range(1, 12):
            disk = SimDisk(Random(seed))
            disk.make_dir("d")
            checkpoint.write(disk, "d", old)
            disk.fail_at = disk.operations + stop_after
            with suppress(OSError):
                checkpoint.write(disk, "d", new)
            found = checkpoint.read(disk.power_cut(), "d")
            assert found in (old, new), f"seed {seed}, operation {stop_after}"
            assert found == new or disk.dead, "it is safe once it is written"
            seen.add(found == new)
    assert seen == {True, False}


def test_files_beyond_the_limit_are_closed_unless_they_are_needed() -> None:
    disk = SimDisk(Random(1))
    disk.make_dir("d")
    files = OpenFiles(disk, limit=3)
    used = files.get("d/used", create=True)
    used.uses += 1
    files.get("d/dirty", create=True).dirty = True
    files.get("d/idle", create=True)
    files.get("d/next", create=True)
    assert sorted(opened.path for opened in files._files.values()) == ["d/dirty", "d/next", "d/used"]
    files.get("d/next").dirty = True
    files.get("d/last", create=True)
    assert "d/dirty" not in files._files, "when nothing is clean, the dirty one that was not used for longest goes"
    assert used.file in disk._open
    files.forget("d/used")
    assert disk.pread(used.file, 1, 0) == b"", "still open for who uses it"
    files.release(used)
    with pytest.raises(KeyError):
        disk.pread(used.file, 1, 0)
    files.close()
    assert disk._open == {}


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
