"""Merges many small files of a lake into few large ones. The rows and their order stay the same.

A micro-batch makes a file for each day and partition, and many small files are slow to read. `compact` reads
neighbouring files, writes them as one staged file and commits it in their place, one folder at a time. A crash leaves
either the old files or the new ones. The commit says that no rows have changed, so the lake still knows which
micro-batches it has.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from tidemill.pipelines.lake.core.contents import LakeDamaged, LakeFile, in_order, small_runs
from tidemill.pipelines.lake.interface import CommitStep, Lake, never_null
from tidemill.pipelines.lake.rows import GrowingFile

TARGET_BYTES = 128 * 1024 * 1024
"""The size that Spark reads in one task by default."""
ROWS = 65_536
OFTEN = 32
"""A running archive compacts when this many files could be merged."""

Advance = Callable[[int], None]


def waiting(lake: Lake, target_bytes: int = TARGET_BYTES) -> int:
    """How many files could be merged."""
    return sum(len(run) for run in small_runs(lake.files(), target_bytes))


def compact(lake: Lake, target_bytes: int = TARGET_BYTES, advance: Advance = lambda _: None) -> None:
    """Merge small files. `advance` is called with the number of files that are done."""
    lake.recover()
    runs = small_runs(lake.files(), target_bytes)
    for _, found in groupby(runs, key=lambda run: run[0].folder):
        together = list(found)
        old = tuple(file for run in together for file in run)
        made = [_joined(lake, run) for run in together]
        lake.commit(CommitStep(None, removed=old), made, _schema(lake, together[0][0]))
        advance(len(old))


def _joined(lake: Lake, run: Sequence[LakeFile]) -> LakeFile:
    grown = GrowingFile(
        lake.root,
        f"{run[0].folder}compact-{uuid4().hex[:12]}.parquet",
        _schema(lake, run[0]),
        of_topic=run[0].partition >= 0,
        never_null=never_null(lake),
    )
    for batch in ordered(lake, run, ROWS):
        grown.write(batch)
    file = grown.close()
    if file.rows != sum(each.rows for each in run):
        raise LakeDamaged(f"{lake.root}: {run[0].path} and its neighbours do not have the rows that were committed")
    return file


def ordered(
    lake: Lake, files: Sequence[LakeFile], rows: int, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of files of one partition in the order of their offsets."""
    for group in in_order(files):
        opened = [_opened(lake, file) for file in group]
        if len(opened) == 1 or group[0].partition < 0:
            for each in opened:
                yield from each.iter_batches(rows, columns=columns)
        else:
            whole = pa.concat_tables([each.read(columns) for each in opened]).sort_by("offset")
            yield from whole.combine_chunks().to_batches(rows)


def _opened(lake: Lake, file: LakeFile) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(lake.root / file.path)
    except (OSError, pa.ArrowException) as error:
        raise LakeDamaged(f"{lake.root / file.path} cannot be read: {' '.join(str(error).split())}") from None


def _schema(lake: Lake, file: LakeFile) -> pa.Schema:
    return _opened(lake, file).schema_arrow
