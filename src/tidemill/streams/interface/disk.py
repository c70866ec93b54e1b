"""The file operations that segments use, cut by role, so that a test can replace the disk by a failing one."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tidemill.records.header import Buffer

T = TypeVar("T")


class DiskReader(Protocol):
    """Reads files; paths are relative to the store, a file is known by the number that `open` returned."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and writing."""
        ...

    def close(self, file: int) -> None:
        """Close the file."""
        ...

    def size(self, path: str) -> int:
        """Bytes of the file; FileNotFoundError when there is none."""
        ...

    def pread(self, file: int, size: int, position: int) -> bytes:
        """Bytes at `position`, fewer at the end of the file."""
        ...

    def pread_cached(self, file: int, size: int, position: int) -> Buffer | None:
        """`pread` when the bytes are in the page cache, else None."""
        ...


class DiskWriter(Protocol):
    """Changes the content of open files."""

    def write(self, file: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers one after the other; after an OSError a part of them may be in the file."""
        ...

    def fdatasync(self, file: int) -> None:
        """Return when bytes and size of the file are on disk; FlushFailed when they may never be."""
        ...

    def truncate(self, file: int, size: int) -> None:
        """Cut the file."""
        ...

    def allocate(self, file: int, size: int) -> None:
        """Extend the file to `size` bytes with zeros, and reserve the space for them."""
        ...


class DiskDirectories(Protocol):
    """Changes names in directories."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty when there is no directory."""
        ...

    def make_dir(self, path: str) -> None:
        """Create the directory and its parents, flushed when this returns."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename the file, and replace a file that has the new name."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Return when the names in the directory are on disk; FlushFailed when they may never be."""
        ...


class Disk(DiskReader, DiskWriter, DiskDirectories, Protocol):
    """All file operations, and where blocking ones run."""

    async def aside(self, call: Callable[[], T]) -> T:
        """Run a call that may block: in a thread for the real disk, in place for a simulated one."""
        ...

    def shutdown(self) -> None:
        """End the threads, if there are any."""
        ...
