"""The clock of a data directory without a clock record: its files are the evidence."""

import os
from pathlib import Path

import pytest

from tidemill.app.clock_watch import open_watch
from tidemill.app.clocks import SystemClocks
from tidemill.clocks.record import FILE
from tidemill.settings import load

DAY_S = 86_400


def put(path: Path, age_days: int) -> None:
    """A file that was last written so many days ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    written_s = SystemClocks().wall_ms() / 1000 - age_days * DAY_S
    os.utime(path, (written_s, written_s))


def kinds(data_dir: Path) -> tuple[str, ...]:
    return open_watch(load({"data-dir": str(data_dir)}), SystemClocks()).kinds()


@pytest.mark.parametrize("name", ["clean-shutdown", "timelines.db", "timelines.db-wal", "coordination.journal"])
def test_a_broker_without_produce_is_trusted_after_an_upgrade(name: str, tmp_path: Path) -> None:
    put(tmp_path / "streams" / "orders" / "0" / "00000000000000000000.log", 5)
    assert kinds(tmp_path) == ("later",)
    (tmp_path / FILE).unlink()
    put(tmp_path / name, 0)
    assert kinds(tmp_path) == ()


def test_the_lock_of_this_start_is_no_evidence(tmp_path: Path) -> None:
    put(tmp_path / "timelines.db", 30)
    put(tmp_path / "lock", 0)
    assert kinds(tmp_path) == ("later",)
