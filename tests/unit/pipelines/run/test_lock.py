"""A lock file allows one writer."""

import os
from pathlib import Path

import pytest

from tidemill.pipelines.run.lock import Busy, hold


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with (
        hold(tmp_path / "lock", "shop"),
        pytest.raises(Busy, match=f"process {os.getpid()} is working on shop"),
        hold(tmp_path / "lock", "shop"),
    ):
        pass
    with hold(tmp_path / "lock", "shop"):
        pass
