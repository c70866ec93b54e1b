"""Batches for the tests of records: drawn by hypothesis, and read and written by other people's code."""

from hypothesis import strategies as st

from tidemill.records.build import NewRecord
from tidemill.records.compression import Codec

NOW_MS = 1_700_000_000_000
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]

# Sizes around the points where a varint grows by a byte matter more than large ones.
contents = st.one_of(
    st.none(), st.binary(max_size=12), st.sampled_from([63, 64, 65, 8191, 8192]).map(lambda size: b"x" * size)
)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
timestamps = st.integers(min_value=0, max_value=NOW_MS * 2)
new_records = st.lists(st.builds(NewRecord, contents, contents, headers, timestamps), min_size=1, max_size=12)


def sample(count: int = 3) -> list[NewRecord]:
    """Plain records: `k0`, `k1`, ... one millisecond apart."""
    return [NewRecord(b"k%d" % i, b"value %d" % i, (("h", b"%d" % i),), NOW_MS + i) for i in range(count)]
