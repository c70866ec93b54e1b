"""A table by key: what a task does with the newest records of the keys of one bucket.

Keys are spread over buckets, each a folder with one file. A micro-batch rewrites the buckets of its keys: rows whose
key it has give way, records without a value (tombstones) only take away. Doing it twice gives the same file, and the
commit of the lake lets it happen once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemill.pipelines.core.errors import PipelineError
from tidemill.pipelines.core.lake import LakeFile
from tidemill.pipelines.core.layout import SchemaChanged
from tidemill.pipelines.lake.rows import FILE_SCHEMA, GrowingFile

BUCKET = "bucket"
GONE = "_gone"
"""A column of the newest records that says that their key is to be taken away."""


@dataclass(frozen=True, slots=True)
class Bucketing:
    """Where a micro-batch writes; `name` is unlike that of every other one; `files` are the table's now, by bucket."""

    root: str
    name: str
    files: Mapping[int, Sequence[str]]
    key: str = "key"
    keep_columns: bool = False
    never_null: tuple[str, ...] = ()
    """Columns that the files declare as never null, as their table does."""


def merge_bucket(table: Bucketing, newest: pa.Table) -> pa.Table:
    """Write a bucket anew with the newest records of some of its keys; the file, as a row of FILE_SCHEMA."""
    bucket = int(newest.column(BUCKET)[0].as_py())
    alive = newest.filter(pc.invert(newest.column(GONE))).drop_columns([GONE])
    rows = alive if table.keep_columns else alive.drop_columns([BUCKET])
    for path in table.files.get(bucket, ()):
        kept = pq.ParquetFile(Path(table.root) / path).read()
        replaced = pc.is_in(kept.column(table.key), value_set=newest.column(table.key).combine_chunks())
        if set(rows.column_names) != set(kept.column_names):  # compared with the lake before, this is a last check
            raise SchemaChanged(f"{Path(table.root) / path} has columns {kept.column_names}, not {rows.column_names}")
        rows = pa.concat_tables([kept.filter(pc.invert(replaced)), rows.select(kept.schema.names).cast(kept.schema)])
    if not rows.num_rows:
        return FILE_SCHEMA.empty_table()
    path = f"{BUCKET}={bucket}/{table.name}.parquet"
    grown = GrowingFile(Path(table.root), path, rows.schema, never_null=table.never_null)
    for batch in rows.sort_by(table.key).to_batches():
        grown.write(batch)
    file = grown.close()
    return pa.Table.from_pylist([{"path": path, "rows": file.rows, "size": file.size, "partition": -1}], FILE_SCHEMA)


def by_bucket(files: Sequence[LakeFile]) -> dict[int, list[LakeFile]]:
    """The files of a table by the buckets that their folders name."""
    found: dict[int, list[LakeFile]] = {}
    for file in files:
        name, _, bucket = file.folder.rstrip("/").partition("=")
        if name != BUCKET or not bucket.isdecimal():
            raise PipelineError(f"{file.path} is not of a table by key; give the table another folder")
        found.setdefault(int(bucket), []).append(file)
    return found
