"""One broker per data directory, whatever happens to the lock file."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from tidemill.app.lock import LOCK, DataDirInUse, DataDirLock


def test_a_lock_names_its_owner_and_is_free_afterwards(tmp_path: Path) -> None:
    lock = DataDirLock(tmp_path)
    with pytest.raises(DataDirInUse, match=f"process id {os.getpid()};"):
        DataDirLock(tmp_path)
    lock.release()
    DataDirLock(tmp_path).release()


@pytest.mark.parametrize("again", [False, True], ids=["removed", "replaced"])
def test_a_removed_lock_file_lets_no_second_broker_in(tmp_path: Path, again: bool) -> None:
    lock = DataDirLock(tmp_path)
    (tmp_path / LOCK).unlink()
    if again:
        (tmp_path / LOCK).touch()
    with pytest.raises(DataDirInUse):
        DataDirLock(tmp_path)
    lock.release()
    DataDirLock(tmp_path).release()


def test_an_older_version_is_kept_out(tmp_path: Path) -> None:
    with (tmp_path / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DataDirInUse, match="process id unknown"):
            DataDirLock(tmp_path)


def test_a_file_system_without_locks_on_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.flock

    def flock(file: int, operation: int) -> None:
        if os.path.samestat(os.fstat(file), tmp_path.stat()):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = DataDirLock(tmp_path)
    with pytest.raises(DataDirInUse):
        DataDirLock(tmp_path)
    lock.release()


def test_a_full_disk_without_a_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def full(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", full)
    lock = DataDirLock(tmp_path)
    with pytest.raises(DataDirInUse):
        DataDirLock(tmp_path)
    lock.release()
