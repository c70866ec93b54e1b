"""Signals, and the lock of a data directory."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tidemill.app import process
from tidemill.app.lock import DataDirInUse, DataDirLock


def test_the_first_signal_stops_and_the_second_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    stopping = asyncio.Event()
    process._on_signal(signal.SIGTERM, stopping)
    assert stopping.is_set()
    assert ended == []
    process._on_signal(signal.SIGINT, stopping)
    assert ended == [process.FORCED_EXIT_CODE]


def test_a_lock_names_its_owner_and_can_be_taken_again(tmp_path: Path) -> None:
    first = DataDirLock(tmp_path / "new" / "folder")
    with pytest.raises(DataDirInUse, match=f"process id {os.getpid()};"):
        DataDirLock(tmp_path / "new" / "folder")
    first.release()
    DataDirLock(tmp_path / "new" / "folder").release()
