"""A disk in memory that fails on demand: full, broken, killed at the nth operation, cut off from its power.

What it models: each file has the bytes that a reader sees and the image that is safe.
`fdatasync` makes them equal. A power cut keeps of the unsafe blocks (4 KiB) a random choice: a lost block has its old
content, or zeros where the file was shorter; the size is somewhere between the old and the new. Names (create,
rename, remove) are safe after `fsync_dir`; of the later ones a power cut keeps those up to a random one, in their
order. A failed fdatasync drops what it should have written and reports that once: the next one succeeds and the bytes
are gone all the same.

Every choice comes from the given random source, so a seed is a history. Operations that change something are counted;
`fail_at` names the one that fails and how. Nothing here starts a thread.
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
ROOM_MAX = 2**62


class Fault(Enum):
    """How an operation fails."""

    EIO = "the disk reports an error, once"
    ENOSPC = "the disk is full, once; nothing of the write is there"
    SHORT = "the disk is full, once; half of the write is there"
    KILL = "the process ends: this operation and all after it do nothing"


class _File:
    """The bytes of one file, and what of them is safe."""

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
        """What a failed fdatasync does: the blocks count as written, and are not."""
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
    """A `Disk` whose every failure is chosen by the test."""

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
        """The disk that the next start finds after the power was gone."""
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
        """The disk that the next start finds after the process was killed: nothing that was written is lost."""
        after = SimDisk(self.random)
        for path, file in self._names.items():
            after._put(path, bytes(file.data))
        after._dirs = set(self._dirs)
        return after

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Damage a file, for its readers and for good."""
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
        """Let go of a file."""
        del self._open[file]

    def size(self, path: str) -> int:
        """Bytes of a file."""
        self._alive()
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return len(self._names[path].data)

    def write(self, file: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write, or a part and an error."""
        data = b"".join(buffers)
        fault = self._count()
        room = len(data) // 2 if fault is Fault.SHORT else len(data)
        grown = position + len(data) - len(self._open[file].data)
        if grown > (free := self._room()):
            room = max(0, len(data) - (grown - free))
        self._open[file].write(data[:room], position)
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pread(self, file: int, size: int, position: int) -> bytes:
        """Read."""
        self._alive()
        return bytes(self._open[file].data[position : position + size])

    def pread_cached(self, file: int, size: int, position: int) -> Buffer | None:
        """Read, or say that it has to be read aside."""
        return self.pread(file, size, position) if self.random.random() < 0.5 else None

    def fdatasync(self, file: int) -> None:
        """Make a file's bytes safe, or drop them and say so."""
        try:
            self._count()
        except OSError as error:
            self._open[file].drop_unsafe()
            raise FlushFailed(error.errno, error.strerror) from error
        self._open[file].sync()

    def fsync_dir(self, path: str) -> None:
        """Make the names of a folder safe."""
        try:
            self._count()
        except OSError as error:
            raise FlushFailed(error.errno, error.strerror) from error
        for change in self._pending.pop(path, []):
            change(self._safe_names)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, or a folder with all in it."""
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
        """Cut a file; safe only after fdatasync."""
        if self._count() is Fault.SHORT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        del self._open[file].data[size:]

    def allocate(self, file: int, size: int) -> None:
        """Zeros up to `size`, if there is room for them."""
        if self._count() is Fault.SHORT or size - len(self._open[file].data) > self._room():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = self._open[file].data
        data.extend(bytes(max(0, size - len(data))))

    def list(self, path: str) -> list[str]:
        """The names of files in a folder, and of folders."""
        self._alive()
        inside = [name for name in (*self._names, *self._dirs) if name.startswith(f"{path}/")]
        return sorted({name.removeprefix(f"{path}/").split("/")[0] for name in inside})

    def make_dir(self, path: str) -> None:
        """Make a folder; safe at once."""
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
        """Run the call after a few turns of the loop."""
        for _ in range(self.random.randint(0, TURNS_MAX)):
            await asyncio.sleep(0)
        return call()

    def shutdown(self) -> None:
        """Nothing to end."""

    def _room(self) -> int:
        """Bytes that files may still grow."""
        if self.quota_bytes < 0:
            return ROOM_MAX
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
        """Count an operation; raise when it is the one that fails, except for a short write."""
        self._alive()
        self.operations += 1
        if self.operations - 1 != self.fail_at:
            return None
        if self.fault is Fault.SHORT:
            return self.fault
        self.dead = self.fault is Fault.KILL
        number = errno.ENOSPC if self.fault is Fault.ENOSPC else errno.EIO
        raise OSError(number, os.strerror(number))
