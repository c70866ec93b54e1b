"""Records of a topic as rows of a lake."""

from datetime import UTC, datetime

import pyarrow as pa

from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.interface import CommitStep, Lake
from tidemill.pipelines.lake.parquet import ParquetLake
from tidemill.pipelines.lake.rows import StagedRows, stage_rows

DAY = [datetime(2026, 11, 15, tzinfo=UTC).date(), datetime(2026, 11, 16, tzinfo=UTC).date()]


def rows(partition: int, offsets: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "value": [str(offset).encode() for offset in offsets],
            "topic": ["orders"] * len(offsets),
            "partition": pa.array([partition] * len(offsets), pa.int32()),
            "offset": list(offsets),
            "date": [DAY[offset % 2] for offset in offsets],
        }
    )


def stage(lake: Lake, name: str, *batches: pa.RecordBatch) -> list[LakeFile]:
    reported = stage_rows(StagedRows(str(lake.root), name, ("date",), lake.keeps_columns), 0, batches)
    return [LakeFile(**row) for batch in reported for row in batch.to_pylist()]


def add(lake: ParquetLake, batch: int, *batches: pa.RecordBatch, query: str = "q") -> None:
    lake.recover()
    if not lake.holds(query, batch):
        lake.commit(CommitStep(query, batch), stage(lake, f"{batch:04}", *batches), batches[0].schema)
