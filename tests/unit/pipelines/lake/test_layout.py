"""Rows that do not have the columns of a lake are refused in one line, and nothing is written."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.unit.pipelines.lake.sample_items import KEPT, values, write

from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.lake.compaction import compact
from tidemill.pipelines.lake.core.layout import LakeLayout, SchemaChanged, check_storable, differences, layout_of
from tidemill.pipelines.lake.interface import ICEBERG_CATALOG, check_rows, never_null
from tidemill.pipelines.lake.opening import FORMATS, open_lake
from tidemill.pipelines.lake.parquet import LOG
from tidemill.pipelines.spark.lake import schema_of


def changed(name: str, kind: pa.DataType | None) -> pa.Schema:
    fields = {field.name: field.type for field in KEPT} | {name: kind}
    return pa.schema([(key, value) for key, value in fields.items() if value is not None])


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_columns_fit_in_any_order_and_others_are_refused(tmp_path: Path, kind: str) -> None:
    lake = open_lake(tmp_path / "orders", kind)
    assert lake.layout() is None
    write(lake, 0, values(KEPT))
    write(lake, 1, values(KEPT).select([field.name for field in reversed(KEPT)]))
    before = lake.files()
    for name, type_, line in (
        ("price", pa.string(), "price is double in the lake, and string now"),
        ("price", None, "price is double in the lake, and missing now"),
        ("note", pa.string(), "note is not in the lake, and string now"),
        ("at", pa.timestamp("us"), "at is timestamp in the lake, and timestamp_ntz now"),
    ):
        schema = changed(name, type_)
        with pytest.raises(SchemaChanged, match=rf"^{lake.root} has other columns: {line}; write to another folder"):
            check_rows(open_lake(lake.root, kind), schema, ("item",))
        with pytest.raises(SchemaChanged, match=line):
            write(lake, 2, values(schema))
    with pytest.raises(SchemaChanged, match="its folders are by item, and by nothing now"):
        write(lake, 2, values(KEPT), by=())
    assert lake.files() == before
    assert not lake.holds("q", 2)
    compact(lake)  # files whose columns are in another order
    assert sum(file.rows for file in lake.files()) == 6
    write(lake, 3, values(KEPT))
    with pytest.raises(SchemaChanged, match="note is not in the lake"):
        write(lake, 4, values(changed("note", pa.string())))


def test_a_lake_whose_commits_have_no_columns_is_compared_with_its_files(tmp_path: Path) -> None:
    lake = open_lake(tmp_path / "orders")
    write(lake, 0, values(KEPT))
    entry = lake.root / LOG / "000000000000.json"
    entry.write_text(entry.read_text().replace('"columns"', '"former"'))
    check_rows(lake, KEPT, ("item",))
    with pytest.raises(SchemaChanged, match="price is double in the lake, and string now"):
        check_rows(lake, changed("price", pa.string()), ("item",))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "own",
    [
        {"offset": ["a", "b", None]},
        {"offset": [1, None, 3], "partition": ["x", "y", "z"]},
        {"offset": [1, None, 3], "partition": [1, None, 3], "topic": ["a", "b", "c"], "timestamp": [1.0, 2.0, 3.0]},
    ],
)
def test_a_view_may_have_columns_named_as_those_of_a_record(tmp_path: Path, kind: str, own: dict[str, Any]) -> None:
    lake = open_lake(tmp_path / "own", kind)
    rows = pa.RecordBatch.from_pydict({"item": ["tea", "tea", "milk"], **own})
    for batch in range(2):
        write(lake, batch, rows)
    assert {file.partition for file in lake.files()} == {-1}
    compact(lake)
    assert len(lake.files()) == 2
    found = [row for file in lake.files() for row in pq.ParquetFile(lake.root / file.path).read().to_pylist()]
    assert sorted(str(row["offset"]) for row in found) == sorted([str(each) for each in own["offset"]] * 2)


def test_a_required_field_cannot_become_nullable() -> None:
    never = layout_of(pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    may = layout_of(pa.schema([("a", pa.int64())]))
    assert differences(never, may) == ["a is never null in the lake, and may be null now"]
    assert differences(may, never) == differences(may, may) == []


def make_former_table(root: Path, kind: str, schema: pa.Schema) -> None:
    """An empty table by item, with Spark's flags of null, as versions created it that did not compare columns."""
    root.mkdir()
    if kind == "delta":
        DeltaTable.create(str(root), schema, mode="ignore", partition_by=["item"])
    else:
        catalog = SqlCatalog("lake", uri=f"sqlite:///{root / ICEBERG_CATALOG}", warehouse=f"file://{root}")
        catalog.create_namespace("lake")
        table = catalog.create_table(("lake", root.name), schema, location=f"file://{root}")
        with table.update_spec() as change:
            change.add_field("item", IdentityTransform(), "item")
        catalog.close()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_of_a_former_version_keep_columns_that_are_never_null(tmp_path: Path, kind: str) -> None:
    counted = StructType([StructField("item", StringType()), StructField("n", LongType(), nullable=False)])
    schema = schema_of(cast("DataFrame", SimpleNamespace(schema=counted)))
    rows = pa.RecordBatch.from_pydict({"item": ["tea", "tea", "milk"], "n": [1, 2, 3]}, schema=schema)
    make_former_table(tmp_path / "former", kind, schema)
    former = open_lake(tmp_path / "former", kind)
    for batch in range(2):
        check_rows(former, schema, ("item",))
        write(former, batch, rows)
    compact(former)
    write(former, 2, rows)
    assert sum(file.rows for file in former.files()) == 9
    assert never_null(former) == ("n",)
    with pytest.raises(SchemaChanged, match="n is never null in the lake, and may be null now"):
        check_rows(former, pa.schema([field.with_nullable(True) for field in schema]), ("item",))
    new = open_lake(tmp_path / "new", kind)
    write(new, 0, rows)
    assert never_null(new) == ()


@pytest.mark.parametrize(
    ("fields", "by", "line"),
    [
        ([("a", pa.int64()), ("A", pa.string())], (), "the column a occurs twice"),
        ([("a", pa.null())], (), "the column a has no type"),
        ([("a", pa.binary()), ("b", pa.string())], ("a",), "by names a, which is binary; folders are made of string"),
        ([("a", pa.float64()), ("b", pa.string())], ("a",), "by names a, which is double; folders are made of string"),
        ([("a", pa.string())], ("a",), "by names all columns"),
    ],
)
def test_rows_that_no_lake_can_keep(fields: list[tuple[str, pa.DataType]], by: tuple[str, ...], line: str) -> None:
    with pytest.raises(WrongOption, match=line):
        check_storable(layout_of(pa.schema(fields), by))
    check_storable(LakeLayout(layout_of(KEPT).columns, ("item", "small")))
