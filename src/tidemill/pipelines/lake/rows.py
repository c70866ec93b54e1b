"""A task of a lake: writes rows into staged Parquet files, one for each partition of the lake, such as a day."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemill.durable_files import sync
from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.core.layout import nullable
from tidemill.pipelines.lake.interface import NO_VALUE, STAGING

CODEC = "zstd"
FILE_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("partition", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Where the rows of a micro-batch are staged. `name` is unique to the micro-batch."""

    root: str
    name: str
    by: tuple[str, ...] = ()
    keep_columns: bool = False
    of_topic: bool = True
    """Whether the columns topic, partition and offset, if all exist, are those of records of a topic."""
    never_null: tuple[str, ...] = ()
    """Columns that the files declare as never null, because their table does."""


class GrowingFile:
    """A staged file that is being written. `path` is its final place."""

    def __init__(
        self,
        root: Path,
        path: str,
        schema: pa.Schema,
        *,
        of_topic: bool = False,
        never_null: Collection[str] = (),
    ) -> None:
        self._path = path
        self._schema = nullable(schema, never_null)
        self._of_topic = of_topic
        self._staged = root / STAGING / path
        self._staged.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._staged, self._schema, compression=CODEC)
        self._rows = 0
        self._partition = self._first = self._last = -1

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        self._writer.write_batch(rows.select(self._schema.names).cast(self._schema))
        self._rows += rows.num_rows
        if self._of_topic:
            offsets = pc.min_max(rows.column("offset")).as_py()
            self._partition = rows.column("partition")[0].as_py()
            self._first = offsets["min"] if self._first < 0 else min(self._first, offsets["min"])
            self._last = max(self._last, offsets["max"])

    def close(self) -> LakeFile:
        """Make the file durable and return its description."""
        self._writer.close()
        sync(self._staged)
        size = self._staged.stat().st_size
        return LakeFile(self._path, self._rows, size, self._partition, self._first, self._last)


def stage_rows(stage: StagedRows, task: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task and return the files that it made, as rows of FILE_SCHEMA."""
    growing: dict[tuple[Any, ...], GrowingFile] = {}
    for batch in batches:
        of_topic = stage.of_topic and set(batch.schema.names) >= {"topic", "partition", "offset"}
        keys = [*stage.by, *(name for name in ("topic", "partition") if of_topic and name not in stage.by)]
        for values, rows in _parted(batch, keys):
            kept = rows if stage.keep_columns else rows.drop_columns(list(stage.by))
            if values not in growing:
                folder = "".join(f"{name}={_spelled(value)}/" for name, value in zip(stage.by, values, strict=False))
                path = f"{folder}{stage.name}-{task:05}-{len(growing):03}.parquet"
                growing[values] = GrowingFile(
                    Path(stage.root), path, kept.schema, of_topic=of_topic, never_null=stage.never_null
                )
            growing[values].write(kept)
    files = [file.close() for file in growing.values()]
    columns = {name: [getattr(file, name) for file in files] for name in FILE_SCHEMA.names}
    yield pa.RecordBatch.from_pydict(columns, schema=FILE_SCHEMA)


def _parted(batch: pa.RecordBatch, keys: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    if not keys:
        yield (), batch
        return
    table = pa.Table.from_batches([batch]).select(keys)
    for wanted in table.group_by(keys).aggregate([]).to_pylist():
        chosen = pa.scalar(value=True)
        for name in keys:
            column, value = batch.column(name), wanted[name]
            same = column.is_null() if value is None else pc.fill_null(pc.equal(column, value), fill_value=False)
            chosen = pc.and_(chosen, same)
        yield tuple(wanted[name] for name in keys), batch.filter(chosen)


def _spelled(value: Any) -> str:
    return NO_VALUE if value is None else quote(str(value), safe=" ")
