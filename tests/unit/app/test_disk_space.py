"""The space of the disk for /metrics."""

import shutil
from pathlib import Path

from tidemill.app.disk_space import DiskSpace
from tidemill.model.metrics import Gauge, MetricReading


def values(readings: "list[MetricReading]") -> dict[str, float]:
    return {each.name: each.value for each in readings if isinstance(each, Gauge)}


async def test_the_disk_of_the_directory(tmp_path: Path) -> None:
    disk = DiskSpace(tmp_path)
    assert list(disk.readings()) == []
    await disk.look()
    found = values(list(disk.readings()))
    assert found["tidemill_disk_size_bytes"] == shutil.disk_usage(tmp_path).total
    assert 0 < found["tidemill_disk_free_bytes"] <= found["tidemill_disk_size_bytes"]


async def test_a_directory_that_is_gone_has_no_values(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    disk = DiskSpace(folder)
    await disk.look()
    folder.rmdir()
    await disk.look()
    assert list(disk.readings()) == []
