"""Rows are added only to a lake that the checkpoint knows."""

from pathlib import Path

import pytest
from tests.unit.pipelines.lake.sample_items import KEPT, values, write

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.compaction import compact
from tidemill.pipelines.lake.opening import FORMATS, open_lake
from tidemill.pipelines.spark.lake import check_continues


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_that_the_checkpoint_does_not_know_are_not_added_to(tmp_path: Path, kind: str) -> None:
    lake, checkpoint = open_lake(tmp_path / "orders", kind), tmp_path / "checkpoint"
    check_continues(lake, checkpoint)
    write(lake, 0, values(KEPT))
    with pytest.raises(
        PipelineError, match=r"has rows that are not in the checkpoint .*, so rows could be duplicated"
    ) as caught:
        check_continues(lake, checkpoint)
    assert "\n" not in str(caught.value)
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id": "other"}')
    with pytest.raises(PipelineError, match=r"has rows that are not in the checkpoint .*, so rows could be duplicated"):
        check_continues(lake, checkpoint)
    (checkpoint / "metadata").write_text('{"id": "q"}')
    check_continues(lake, checkpoint)
    compact(lake)
    check_continues(lake, checkpoint)
