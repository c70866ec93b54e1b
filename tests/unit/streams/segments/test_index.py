"""The index of a segment: positions, gaps and files."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import BatchHeader, read_header
from tidemill.streams.segments.index import Index, IndexFiles, decode, encode


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
