"""Staged files of rows that are not records of a topic."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.audit import audit
from tidemill.pipelines.lake.core.contents import LakeFile
from tidemill.pipelines.lake.interface import CommitStep
from tidemill.pipelines.lake.parquet import ParquetLake
from tidemill.pipelines.lake.rows import StagedRows, stage_rows


def test_rows_that_are_of_no_topic_need_no_offsets(tmp_path: Path) -> None:
    lake = ParquetLake(tmp_path / "revenue")
    batch = pa.RecordBatch.from_pydict({"item": ["tea", "a/b", None], "total": [1, 2, 3]})
    reported = stage_rows(StagedRows(str(lake.root), "0", ("item",)), 0, [batch])
    files = [LakeFile(**row) for each in reported for row in each.to_pylist()]
    lake.commit(CommitStep("q", 0), files, batch.schema)
    assert sorted(pq.read_table(lake.root).to_pydict()["total"]) == [1, 2, 3]
    assert pq.read_table(lake.root, filters=[("item", "=", "a/b")]).num_rows == 1
    with pytest.raises(PipelineError, match="rows without offsets"):
        audit(lake)
