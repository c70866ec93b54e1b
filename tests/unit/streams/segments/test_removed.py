"""Removed files: kept for the delay, then deleted."""

from tidemill.streams.segments.removed import RemovedFiles


def test_removed_files_wait_from_the_first_sweep_on() -> None:
    removed = RemovedFiles()
    removed.add(["a", "b"])
    assert removed.due(1000, 60) == []
    removed.add(["c"])
    assert removed.due(1059, 60) == []
    assert removed.due(1060, 60) == ["a", "b"]
    assert removed.due(1119, 60) == ["c"]
    assert removed.due(9999, 60) == []
