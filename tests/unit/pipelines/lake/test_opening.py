"""A folder is opened in its format, and a folder without a lake is reported."""

from pathlib import Path

import pytest

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.audit import audit
from tidemill.pipelines.lake.interface import CHECKPOINT
from tidemill.pipelines.lake.opening import existing_lake, open_lake
from tidemill.pipelines.lake.parquet import LOG


def test_folders_keep_their_format_and_other_folders_are_reported(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="no lake exists at"):
        existing_lake(tmp_path)
    with pytest.raises(PipelineError, match="format orc does not exist"):
        open_lake(tmp_path, "orc")
    (tmp_path / "orders" / LOG).mkdir(parents=True)
    with pytest.raises(PipelineError, match=r"no lake exists at .*; did you mean .*/orders\?$"):
        existing_lake(tmp_path)


def test_an_archive_of_a_topic_without_records_is_an_empty_lake(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).mkdir()
    lake = existing_lake(tmp_path)
    assert (lake.files(), audit(lake).contiguous) == ([], True)
    assert open_lake(tmp_path, "delta").files() == []
