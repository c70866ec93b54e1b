"""Open files of segments: a bounded number."""

from random import Random

import pytest

from tidemill.streams.segments.files import OpenFiles
from tidemill.testing.faults import SimDisk


def test_files_beyond_the_limit_are_closed_unless_they_are_needed() -> None:
    disk = SimDisk(Random(1))
    disk.make_dir("d")
    files = OpenFiles(disk, limit=3)
    used = files.get("d/used", create=True)
    used.uses += 1
    files.get("d/dirty", create=True).dirty = True
    files.get("d/idle", create=True)
    files.get("d/next", create=True)
    assert sorted(opened.path for opened in files._files.values()) == ["d/dirty", "d/next", "d/used"]
    files.get("d/next").dirty = True
    files.get("d/last", create=True)
    assert "d/dirty" not in files._files, "when nothing is clean, the dirty one that was not used for longest goes"
    assert used.file in disk._open
    files.forget("d/used")
    assert disk.pread(used.file, 1, 0) == b"", "still open for who uses it"
    files.release(used)
    with pytest.raises(KeyError):
        disk.pread(used.file, 1, 0)
    files.close()
    assert disk._open == {}
