"""Signals, and the lock of a data directory."""

import asyncio
import errno
import os
import resource
import signal
from pathlib import Path

import pytest

from tidemill.app import process
from tidemill.app.lock import DataDirInUse, DataDirLock
from tidemill.model.addresses import Address


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


def test_a_disk_without_room_for_a_number_is_no_reason_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a broker that stopped in order is empty: the number needs a block that may be gone."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    DataDirLock(tmp_path).release()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        held = DataDirLock(tmp_path)
    with pytest.raises(DataDirInUse, match="a broker with process id unknown"):
        DataDirLock(tmp_path)
    held.release()


def test_a_person_sees_what_to_type() -> None:
    reported = process.first_commands(Address("127.0.0.1", 9092), "https://[::1]:8080")
    assert "https://[::1]:8080/" in reported
    assert "tidemill topic create orders --partitions 3\n" in reported
    assert "--bootstrap 127.0.0.1:19092\n" in process.first_commands(Address("127.0.0.1", 19092), None)
    assert "tidemill" not in process.first_commands(None, None)
    secured = process.first_commands(Address("127.0.0.1", 9092), None, needs_client_file=True)
    assert "  log in    with --client FILE" in secured
    assert secured.count("--client FILE\n") == 3


def test_a_process_takes_as_many_files_as_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: taken.append((kind, limits)))
    process._allow_many_files()
    assert taken == [(resource.RLIMIT_NOFILE, (4096, 4096))]
