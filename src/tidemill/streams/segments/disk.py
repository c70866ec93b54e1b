"""File operations on the real disk, with a few threads for blocking calls.

Small writes go to the page cache and run on the event loop. fdatasync and large operations run on the threads. A read
first tries the page cache only (RWF_NOWAIT), so that a reader of old data never blocks the event loop.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import TypeVar

from tidemill.model.metrics import Histogram
from tidemill.records.header import Buffer
from tidemill.streams.interface import FlushFailed

T = TypeVar("T")

THREADS = 4
FILE_MODE = 0o600
DIR_MODE = 0o700
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_NOT_NOW = {errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS}


class RealDisk:
    """File operations below one folder."""

    def __init__(self, root: Path, flush_duration: Histogram | None = None) -> None:
        self._root = root.absolute()
        self._flush_duration = flush_duration or Histogram()
        self._counting = Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="disk")

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file for reading and writing. Symbolic links are rejected."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        return os.open(self._root / path, flags, FILE_MODE)

    def close(self, file: int) -> None:
        """Close the descriptor."""
        os.close(file)

    def size(self, path: str) -> int:
        """Return the size of the file in bytes."""
        return (self._root / path).stat().st_size

    def write(self, file: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers. A short write is continued, so that its cause surfaces as an OSError."""
        left = sum(map(len, buffers))
        written = os.pwritev(file, buffers, position)
        while written < left:
            buffers = _rest(buffers, written)
            position += written
            left -= written
            written = os.pwritev(file, buffers, position)

    def pread(self, file: int, size: int, position: int) -> bytes:
        """Return the bytes at `position`. The result is shorter only at the end of the file."""
        data = os.pread(file, size, position)
        while len(data) < size:
            more = os.pread(file, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pread_cached(self, file: int, size: int, position: int) -> Buffer | None:
        """Return the bytes if the page cache has all of them, else None."""
        if not _NOWAIT:
            return None
        buffer = bytearray(size)
        try:
            count = os.preadv(file, [buffer], position, _NOWAIT)
        except OSError as error:
            if error.errno in _NOT_NOW:
                return None
            raise
        return buffer if count == size else None

    def fdatasync(self, file: int) -> None:
        """Flush the file's data to the disk."""
        with self._flushing():
            os.fdatasync(file)

    def fsync_dir(self, path: str) -> None:
        """Flush the folder's entries to the disk."""
        folder = os.open(self._root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with self._flushing():
                os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def _flushing(self) -> Iterator[None]:
        began = perf_counter()
        try:
            yield
        except OSError as error:
            raise FlushFailed(error.errno, error.strerror) from error
        finally:
            with self._counting:  # flushes run on several threads
                self._flush_duration.add(perf_counter() - began)

    def rename(self, old: str, new: str) -> None:
        """Rename a file and replace an existing target."""
        (self._root / old).replace(self._root / new)

    def truncate(self, file: int, size: int) -> None:
        """Truncate the file."""
        os.ftruncate(file, size)

    def allocate(self, file: int, size: int) -> None:
        """Reserve disk space. Raise OSError where the system does not support it."""
        if not hasattr(os, "posix_fallocate"):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        os.posix_fallocate(file, 0, size)

    def list(self, path: str) -> list[str]:
        """Return the names in the folder, sorted."""
        try:
            return sorted(os.listdir(self._root / path))  # noqa: PTH208 - the names are needed, not the paths
        except FileNotFoundError:
            return []

    def make_dir(self, path: str) -> None:
        """Create a folder and its parents, and flush each parent."""
        missing = []
        folder = self._root / path
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for new in reversed(missing):
            new.mkdir(DIR_MODE, exist_ok=True)
            self.fsync_dir(str(new.parent))

    def remove(self, path: str) -> None:
        """Delete a file."""
        (self._root / path).unlink()

    def remove_dir(self, path: str) -> None:
        """Delete an empty folder."""
        (self._root / path).rmdir()

    async def aside(self, call: Callable[[], T]) -> T:
        """Run the call on a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def shutdown(self) -> None:
        """Stop the threads after their current work."""
        self._threads.shutdown()


def _rest(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    rest: list[Buffer] = []
    for buffer in buffers:
        if written >= len(buffer):
            written -= len(buffer)
            continue
        rest.append(memoryview(buffer)[written:] if written else buffer)
        written = 0
    return rest
