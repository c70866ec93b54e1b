"""A table by key: merges the newest records of the keys of one bucket.

Keys are spread over buckets. Each bucket is a folder with one file. A micro-batch rewrites the buckets of its keys. A
new row replaces the old row of its key, and a record without a value (a tombstone) deletes it. Merging twice gives the
same file, and the lake commits it only once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.core.layout import SchemaChanged
from tidemill.pipelines.lake.rows import FILE_SCHEMA, GrowingFile

BUCKET = "bucket"
GONE = "_gone"
"""A column of the newest records: whether their key is to be deleted."""


@dataclass(frozen=True, slots=True)
class Bucketing:
    """Where a micro-batch writes. `name` is unique to it; `files` are the table's current files by bucket."""

    root: str
    name: str
    files: Mapping[int, Sequence[str]]
    key: str = "key"
    keep_columns: bool = False
    never_null: tuple[str, ...] = ()
    """Columns that the files declare as never null, because their table does."""


def merge_bucket(table: Bucketing, newest: pa.Table) -> pa.Table:
    """Rewrite a bucket with the newest records of some of its keys. Returns the file as a row of FILE_SCHEMA."""
    bucket = int(newest.column(BUCKET)[0].as_py())
    alive = newest.filter(pc.invert(newest.column(GONE))).drop_columns([GONE])
    rows = alive if table.keep_columns else alive.drop_columns([BUCKET])
    for path in table.files.get(bucket, ()):
        kept = pq.ParquetFile(Path(table.root) / path).read()
        replaced = pc.is_in(kept.column(table.key), value_set=newest.column(table.key).combine_chunks())
        if set(rows.column_names) != set(kept.column_names):  # the driver has checked this before
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
    """The files of a table by bucket, taken from the folder names."""
    found: dict[int, list[LakeFile]] = {}
    for file in files:
        name, _, bucket = file.folder.rstrip("/").partition("=")
        if name != BUCKET or not bucket.isdecimal():
            raise PipelineError(f"{file.path} does not belong to a table by key; write the table to another folder")
        found.setdefault(int(bucket), []).append(file)
    return found
