"""The lock that allows one broker per data directory. It ends with its process, however the process ends.

Both the directory and the file `lock` in it are locked. The directory's lock holds even if the file is removed. The
file's lock keeps out older versions, and brokers on file systems where a directory cannot be locked.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidemill.model.errors import TidemillError

LOCK = "lock"
DIRECTORY_MODE = 0o700
"""The mode of a new data directory: records and credentials are for the broker's user only."""
CANNOT_LOCK = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL})
"""Error numbers of file systems that cannot lock a directory, such as NFS."""


class DataDirInUse(TidemillError):
    """Another broker runs on this data directory."""


class DataDirUnusable(TidemillError):
    """The data directory cannot be written."""


class DataDirLock:
    """Held while the broker runs. The file contains the broker's process id."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK
        self._files: list[int] = []
        hint = "choose another with --data-dir"
        try:
            data_dir.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self._files.append(os.open(data_dir, os.O_RDONLY | os.O_CLOEXEC))
            with _disk_may_be_full():
                self._files.append(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        except OSError as error:
            self._close()
            raise DataDirUnusable(f"data directory {data_dir} cannot be used: {error.strerror}; {hint}") from None
        try:
            for file in self._files:
                _lock(file)
        except BlockingIOError:
            owner = self._owner()
            self._close()
            raise DataDirInUse(
                f"data directory {data_dir} is in use by a broker with process id {owner}; stop it or {hint}"
            ) from None
        # The process id is only for operators: a full disk must not stop a broker from serving reads.
        with suppress(OSError):
            self._write_owner(f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Release the lock. The file stays, because older versions lock nothing else."""
        with suppress(OSError):
            self._write_owner(b"")
        self._close()

    def _owner(self) -> str:
        try:
            return self._path.read_text("ascii", "replace").strip() or "unknown"
        except OSError:
            return "unknown"

    def _write_owner(self, text: bytes) -> None:
        for file in self._files[1:]:
            os.ftruncate(file, 0)
            os.pwrite(file, text, 0)

    def _close(self) -> None:
        for file in self._files:
            os.close(file)
        self._files = []


@contextmanager
def _disk_may_be_full() -> Iterator[None]:
    """Ignore a full disk, on which no lock file can be created: the directory's lock is enough then."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise


def _lock(file: int) -> None:
    """Lock the file. BlockingIOError when another process holds the lock; no error if the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in CANNOT_LOCK:
            raise
