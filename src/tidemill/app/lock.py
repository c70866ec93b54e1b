"""One broker per data directory: a lock that ends with its process, whatever ends it.

Both the directory itself and the file `lock` in it are locked. The directory's lock also holds when the file is
removed. The file's lock keeps out older versions, and brokers on file systems where a directory cannot be locked.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidemill.model.errors import TidemillError

LOCK = "lock"
CANNOT_LOCK = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOTSUP, errno.EINVAL})
"""What file systems answer on which a directory cannot be locked, as NFS."""


class DataDirInUse(TidemillError):
    """Another broker runs on this data directory."""


class DataDirUnusable(TidemillError):
    """The data directory cannot be written."""


class DataDirLock:
    """Held while the broker runs; the file says whose it is."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK
        self._files: list[int] = []
        hint = "choose another with --data-dir"
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            self._files.append(os.open(data_dir, os.O_RDONLY | os.O_CLOEXEC))
            with _room_may_lack():
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
        # The process id is for operators; a disk without room for it does not stop a broker from serving reads.
        with suppress(OSError):
            self._write_owner(f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Let the next broker in. The file stays, for older versions that lock nothing else."""
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
def _room_may_lack() -> Iterator[None]:
    """A full disk has no room for a new lock file; the directory's lock is enough then."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise


def _lock(file: int) -> None:
    """BlockingIOError when another process holds the lock; a file system that has no such lock is not an error."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in CANNOT_LOCK:
            raise
