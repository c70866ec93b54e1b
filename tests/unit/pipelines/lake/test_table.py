"""Tables by key without Spark: buckets that are merged, tombstones, commits."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.interface import CommitStep, Lake
from tidemill.pipelines.lake.opening import FORMATS, open_lake
from tidemill.pipelines.lake.table import Bucketing, by_bucket, merge_bucket

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("bucket", pa.int32())])


def take(lake: Lake, batch: int, newest: dict[str, int | None], buckets: int = 2) -> None:
    """As `pipelines.spark.latest.into_table` does it."""
    lake.recover()
    if lake.holds("q", batch):
        return
    here = by_bucket(lake.files())
    paths = {bucket: [file.path for file in files] for bucket, files in here.items()}
    made: list[dict[str, Any]] = []
    removed: list[LakeFile] = []
    for bucket in sorted({len(key) % buckets for key in newest}):
        rows = [
            {"key": key, "value": value, "bucket": bucket, "_gone": value is None}
            for key, value in newest.items()
            if len(key) % buckets == bucket
        ]
        table = pa.Table.from_pylist(rows, SCHEMA.append(pa.field("_gone", pa.bool_())))
        reported = merge_bucket(Bucketing(str(lake.root), f"{batch:04}", paths, "key", lake.keeps_columns), table)
        made += reported.to_pylist()
        removed += here.get(bucket, [])
    files = [LakeFile(row["path"], row["rows"], row["size"]) for row in made]
    if files or removed:
        lake.commit(CommitStep("q", batch, tuple(removed)), files, SCHEMA)


def rows_of(lake: Lake) -> dict[str, int]:
    tables = [pq.ParquetFile(lake.root / file.path).read(["key", "value"]) for file in lake.files()]
    return {row["key"]: row["value"] for table in tables for row in table.to_pylist()}


@pytest.mark.parametrize("kind", FORMATS)
def test_the_newest_value_of_a_key_counts_and_tombstones_take_away(tmp_path: Path, kind: str) -> None:
    lake = open_lake(tmp_path / "prices", kind)
    take(lake, 0, {"a": 1, "b": 2, "aa": 3, "bb": 4})
    take(lake, 1, {"a": 5, "bb": None, "c": 6, "never": None})
    take(lake, 1, {"a": 99})
    assert rows_of(lake) == {"a": 5, "b": 2, "c": 6, "aa": 3}
    take(lake, 2, {"aa": None})
    assert rows_of(lake) == {"a": 5, "b": 2, "c": 6}
    assert len(lake.files()) == 1
    if kind == "delta":
        assert sorted(DeltaTable(str(lake.root)).to_pyarrow_table()["key"].to_pylist()) == ["a", "b", "c"]


@given(
    st.lists(
        st.dictionaries(st.text("ab", min_size=1, max_size=4), st.none() | st.integers(0, 9), min_size=1), max_size=6
    )
)
@example([{"a": 0}, {"a": None}, {"a": 0}])  # a table that was emptied
@settings(max_examples=30, deadline=None)
def test_a_table_is_what_a_dictionary_would_be(tmp_path_factory: pytest.TempPathFactory, changes: list[Any]) -> None:
    lake = open_lake(tmp_path_factory.mktemp("tables") / "t")
    expected: dict[str, int] = {}
    for batch, newest in enumerate(changes):
        take(lake, batch, newest, buckets=3)
        expected = {key: value for key, value in {**expected, **newest}.items() if value is not None}
    assert rows_of(lake) == expected


def test_an_archive_is_no_table() -> None:
    with pytest.raises(PipelineError, match="does not belong to a table by key"):
        by_bucket([LakeFile("date=2026-11-16/a.parquet", 1, 1, 0, 0, 0)])
