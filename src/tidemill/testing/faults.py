"""A disk in memory that fails on demand: full, broken, killed at the nth operation, or after a power cut.

Each file has the bytes that a reader sees and the image that is durable. `fdatasync` makes them equal.

A power cut keeps a random choice of the blocks (4 KiB) that are not durable. A lost block has its old content, or zeros
where the file was shorter. The file size is between the old and the new one. Names (create, rename, remove) are durable
after `fsync_dir`. Of later name changes a power cut keeps a random number of the first ones, in order.

A failed fdatasync drops the bytes that it should have written and reports the error once. The next one succeeds
although the bytes are lost.

Every choice comes from the given random source, so a seed reproduces a run. Operations that change something are
counted. `fail_at` is the number of the operation that fails, and `fault` says how. No thread is started here.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import TypeVar

from tidemill.records.header import Buffer
from tidemill.streams.interface import FlushFailed

T = TypeVar("T")

BLOCK_BYTES = 4096
TURNS_MAX = 3
FREE_BYTES_MAX = 2**62


class Fault(Enum):
    """How an operation fails."""

    EIO = "the disk reports an error, once"
    ENOSPC = "the disk is full, once; nothing is written"
    SHORT = "the disk is full, once; half of the data is written"
    KILL = "the process ends: this operation and all later ones do nothing"


class _File:
    """The bytes of one file, and the image of it that is durable."""

    __slots__ = ("data", "dropped", "safe")

    def __init__(self) -> None:
        self.data = bytearray()
        self.safe = b""
        self.dropped: dict[int, bytes] = {}

    def write(self, data: bytes, position: int) -> None:
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data
        for block in range(position // BLOCK_BYTES, (position + len(data)) // BLOCK_BYTES + 1):
            self.dropped.pop(block, None)

    def sync(self) -> None:
        image = bytearray(self.data)
        for block, content in self.dropped.items():
            image[block * BLOCK_BYTES : block * BLOCK_BYTES + len(content)] = content
        self.safe = bytes(image)

    def drop_unsafe(self) -> None:
        """The effect of a failed fdatasync: the blocks count as written, but are not."""
        for block in range(-(-len(self.data) // BLOCK_BYTES)):
            part = slice(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES)
            if self.data[part] != self.safe[part]:
                self.dropped[block] = self.safe[part].ljust(len(self.data[part]), b"\0")

    def after_power_cut(self, random: Random) -> bytes:
        if self.data == self.safe and not self.dropped:
            return self.safe
        size = random.choice([len(self.safe), len(self.data), random.randint(0, len(self.data))])
        size = max(size, min(len(self.safe), len(self.data)))
        image = bytearray(self.safe[:size].ljust(size, b"\0"))
        for start in range(0, size, BLOCK_BYTES):
            part = slice(start, min(start + BLOCK_BYTES, size))
            if random.random() < 0.5 and start // BLOCK_BYTES not in self.dropped:
                image[part] = self.data[part].ljust(part.stop - part.start, b"\0")
        return bytes(image)


class SimDisk:
    """A `Disk` whose failures the test chooses."""

    def __init__(self, random: Random, *, fail_at: int = -1, fault: Fault = Fault.KILL, quota_bytes: int = -1) -> None:
        self.random = random
        self.operations = 0
        self.fail_at = fail_at
        self.fault = fault
        self.quota_bytes = quota_bytes
        self.dead = False
        self._names: dict[str, _File] = {}
        self._safe_names: dict[str, _File] = {}
        self._pending: dict[str, list[Callable[[dict[str, _File]], None]]] = {}
        self._dirs = {""}
        self._open: dict[int, _File] = {}
        self._next = 3

    def power_cut(self) -> "SimDisk":
        """The disk that the next start finds after a power cut."""
        after = SimDisk(self.random)
        names = dict(self._safe_names)
        for pending in self._pending.values():
            for change in pending[: self.random.randint(0, len(pending))]:
                change(names)
        for path, file in names.items():
            after._put(path, file.after_power_cut(self.random))
        after._dirs = set(self._dirs)
        return after

    def killed(self) -> "SimDisk":
        """The disk that the next start finds after the process was killed. All written bytes are kept."""
        after = SimDisk(self.random)
        for path, file in self._names.items():
            after._put(path, bytes(file.data))
        after._dirs = set(self._dirs)
        return after

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Damage a file permanently: readers see the damage, and it is durable."""
        file = self._names[path]
        file.data[position] ^= 1 << bit
        file.sync()

    def content(self, path: str) -> bytes:
        """The bytes of a file as a reader sees them."""
        return bytes(self._names[path].data)

    def open(self, path: str, *, create: bool = False) -> int:
        """Open a file."""
        self._alive()
        if path not in self._names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._count()
            file = _File()
            self._rename_op(path, lambda names: names.__setitem__(path, file))
        self._next += 1
        self._open[self._next] = self._names[path]
        return self._next

    def close(self, file: int) -> None:
        """Close a file."""
        del self._open[file]

    def size(self, path: str) -> int:
        """Size of a file in bytes."""
        self._alive()
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return len(self._names[path].data)

    def write(self, file: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write the buffers. On a full disk write a part and raise ENOSPC."""
        data = b"".join(buffers)
        fault = self._count()
        written = len(data) // 2 if fault is Fault.SHORT else len(data)
        grown = position + len(data) - len(self._open[file].data)
        if grown > (free := self._free_bytes()):
            written = max(0, len(data) - (grown - free))
        self._open[file].write(data[:written], position)
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pread(self, file: int, size: int, position: int) -> bytes:
        """Read."""
        self._alive()
        return bytes(self._open[file].data[position : position + size])

    def pread_cached(self, file: int, size: int, position: int) -> Buffer | None:
        """Read, or return None at random to say that the bytes are not in the cache."""
        return self.pread(file, size, position) if self.random.random() < 0.5 else None

    def fdatasync(self, file: int) -> None:
        """Make a file's bytes durable, or drop them and raise FlushFailed."""
        try:
            self._count()
        except OSError as error:
            self._open[file].drop_unsafe()
            raise FlushFailed(error.errno, error.strerror) from error
        self._open[file].sync()

    def fsync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        try:
            self._count()
        except OSError as error:
            raise FlushFailed(error.errno, error.strerror) from error
        for change in self._pending.pop(path, []):
            change(self._safe_names)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, or a folder with its contents."""
        self._alive()
        if old not in self._dirs and old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._count()
        if old in self._dirs:
            self._dirs.discard(old)
            self._dirs.add(new)
            for path in [path for path in self._names if path.startswith(f"{old}/")]:
                self._move(path, new + path.removeprefix(old), new.rpartition("/")[0])
        else:
            self._move(old, new, new.rpartition("/")[0])

    def truncate(self, file: int, size: int) -> None:
        """Truncate a file. Durable only after fdatasync."""
        if self._count() is Fault.SHORT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        del self._open[file].data[size:]

    def allocate(self, file: int, size: int) -> None:
        """Extend a file with zeros up to `size`. ENOSPC if the disk has too little space."""
        if self._count() is Fault.SHORT or size - len(self._open[file].data) > self._free_bytes():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = self._open[file].data
        data.extend(bytes(max(0, size - len(data))))

    def list(self, path: str) -> list[str]:
        """The names of the files and folders in a folder."""
        self._alive()
        inside = [name for name in (*self._names, *self._dirs) if name.startswith(f"{path}/")]
        return sorted({name.removeprefix(f"{path}/").split("/")[0] for name in inside})

    def make_dir(self, path: str) -> None:
        """Create a folder. Durable at once."""
        self._count()
        parts = path.split("/")
        self._dirs.update("/".join(parts[: count + 1]) for count in range(len(parts)))

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._alive()
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._count()
        self._rename_op(path, lambda names: names.pop(path, None))

    def remove_dir(self, path: str) -> None:
        """Remove a folder."""
        self._alive()
        if path not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        self._dirs.discard(path)

    async def aside(self, call: Callable[[], T]) -> T:
        """Run the call after a random number of event loop iterations."""
        for _ in range(self.random.randint(0, TURNS_MAX)):
            await asyncio.sleep(0)
        return call()

    def shutdown(self) -> None:
        """Does nothing: there is no thread to stop."""

    def _free_bytes(self) -> int:
        """Bytes by which files may still grow."""
        if self.quota_bytes < 0:
            return FREE_BYTES_MAX
        return max(0, self.quota_bytes - sum(len(one.data) for one in self._names.values()))

    def _put(self, path: str, data: bytes) -> None:
        file = _File()
        file.data = bytearray(data)
        file.safe = data
        self._names[path] = self._safe_names[path] = file

    def _move(self, old: str, new: str, folder: str) -> None:
        file = self._names[old]

        def change(names: dict[str, _File]) -> None:
            names.pop(old, None)
            names[new] = file

        change(self._names)
        self._pending.setdefault(folder, []).append(change)

    def _rename_op(self, path: str, change: Callable[[dict[str, _File]], object]) -> None:
        def run(names: dict[str, _File]) -> None:
            change(names)

        run(self._names)
        self._pending.setdefault(path.rpartition("/")[0], []).append(run)

    def _alive(self) -> None:
        if self.dead:
            raise OSError(errno.EIO, "the process was killed")

    def _count(self) -> Fault | None:
        """Count an operation. Raise if it is the one that fails, except for a short write."""
        self._alive()
        self.operations += 1
        if self.operations - 1 != self.fail_at:
            return None
        if self.fault is Fault.SHORT:
            return self.fault
        self.dead = self.fault is Fault.KILL
        number = errno.ENOSPC if self.fault is Fault.ENOSPC else errno.EIO
        raise OSError(number, os.strerror(number))
