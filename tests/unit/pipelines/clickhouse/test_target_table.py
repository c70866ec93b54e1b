"""Portions of rows."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.pipelines.clickhouse.target_table import portions


@settings(max_examples=50)
@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 7))
def test_portions_do_not_depend_on_how_the_rows_came(sizes: list[int], rows_max: int) -> None:
    total = sum(sizes)
    numbers = iter(range(total))
    batches = [pa.record_batch({"n": pa.array([next(numbers) for _ in range(size)], pa.int64())}) for size in sizes]
    found = [table["n"].to_pylist() for table in portions(batches, rows_max)]
    assert found == [list(range(at, min(at + rows_max, total))) for at in range(0, total, rows_max)]
