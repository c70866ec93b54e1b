"""One broker per data directory: a lock that ends with its process, whatever ends it."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from tidemill.model.errors import TidemillError

LOCK = "lock"


class DataDirInUse(TidemillError):
    """Another broker runs on this data directory."""


class DataDirUnusable(TidemillError):
    """The data directory cannot be written."""


class DataDirLock:
    """Held while the broker runs; the file says whose it is."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            hint = "choose another with --data-dir"
            raise DataDirUnusable(f"data directory {data_dir} cannot be used: {error.strerror}; {hint}") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(self._file, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._file)
            raise DataDirInUse(
                f"data directory {data_dir} is in use by a broker with process id {owner}; "
                "stop it or choose another with --data-dir"
            ) from None
        # Whose it is, is for people; a disk without room for it is no reason to be gone, for what is there can be read.
        with suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let the next broker in. The file stays: removing it would let two brokers lock two files of one name."""
        os.ftruncate(self._file, 0)
        os.close(self._file)
