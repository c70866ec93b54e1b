"""A disk of its own for every broker: a file system in a file, which can be full, dead, or cut from its power.

A power cut is FS_IOC_SHUTDOWN of ext4: what was not flushed is gone, as if the machine had lost its power; until it is
mounted anew every write and flush fails, as on a dead disk. That takes root and loop devices. Where they are not
allowed brokers share the disk of the machine, and nothing can happen to it.
"""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE_BYTES = 192 * 1024 * 1024
PIECE_MIN = 4096
BALLAST = "ballast"
FS_IOC_SHUTDOWN = 0x8004587D
WITHOUT_FLUSH = struct.pack("I", 2)


class Disk:
    """One file system in a file."""

    def __init__(self, home: Path, number: int) -> None:
        self.path = home / f"disk{number}"
        self._image = home / f"disk{number}.img"

    def make(self) -> None:
        """An empty file system, mounted."""
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self.mount()

    def mount(self) -> None:
        """Let it be there; its journal is replayed."""
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def unmount(self) -> None:
        """Let it go; nobody may have a file open."""
        _run("umount", str(self.path))

    def fill(self) -> None:
        """Take all the room that is left."""
        with (self.path / BALLAST).open("wb") as file:
            size, piece = 0, SIZE_BYTES
            while piece >= PIECE_MIN:
                try:
                    os.posix_fallocate(file.fileno(), size, piece)
                    size += piece
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece //= 2

    def free(self) -> None:
        """Give it back."""
        (self.path / BALLAST).unlink(missing_ok=True)

    def cut_power(self) -> None:
        """What was not flushed is gone, and nothing can be written until it is mounted anew."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, FS_IOC_SHUTDOWN, WITHOUT_FLUSH)
        finally:
            os.close(folder)


class Disks:
    """The disks of all brokers."""

    def __init__(self, home: Path, brokers: Iterable[int]) -> None:
        self.real = _allowed(home)
        self.of = {number: Disk(home, number) for number in brokers}

    def up(self) -> None:
        """Make them."""
        for disk in self.of.values():
            if self.real:
                disk.make()
            else:
                disk.path.mkdir()

    def down(self) -> None:
        """Remove what was mounted."""
        for disk in self.of.values() if self.real else ():
            with suppress(subprocess.CalledProcessError):
                disk.unmount()


def _allowed(home: Path) -> bool:
    """Whether file systems may be mounted here: as root, and not in every container."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("mkfs.ext4", "mount", "umount"))):
        return False
    probe = Disk(home, 0)
    try:
        probe.make()
        probe.unmount()
    except (subprocess.CalledProcessError, OSError):
        return False
    return True


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def disks(home: Path, brokers: Iterable[int]) -> Iterator[Disks]:
    """Disks for the length of the block."""
    made = Disks(home, brokers)
    try:
        made.up()
        yield made
    finally:
        made.down()
