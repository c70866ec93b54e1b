"""A disk for every broker: a file system in a file, which can be full, broken, or lose its power.

A power cut is FS_IOC_SHUTDOWN of ext4. Data that was not flushed is lost, as after a power failure of the machine.
Every write and flush fails until the file system is mounted again. This needs root and loop devices. Where they are not
allowed, brokers share the disk of the machine, and no disk faults are injected.
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
        """Create and mount an empty file system."""
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(SIZE_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self.mount()

    def mount(self) -> None:
        """Mount it, which replays its journal."""
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def unmount(self) -> None:
        """Unmount it. No process may have a file open."""
        _run("umount", str(self.path))

    def fill(self) -> None:
        """Fill all free space."""
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
        """Free that space again."""
        (self.path / BALLAST).unlink(missing_ok=True)

    def cut_power(self) -> None:
        """Lose everything that was not flushed, and reject writes until the next mount."""
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
        """Create the disks."""
        for disk in self.of.values():
            if self.real:
                disk.make()
            else:
                disk.path.mkdir()

    def down(self) -> None:
        """Unmount the disks."""
        for disk in self.of.values() if self.real else ():
            with suppress(subprocess.CalledProcessError):
                disk.unmount()


def _allowed(home: Path) -> bool:
    """Whether file systems can be mounted here. It needs root, and some containers forbid it."""
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
    """Provide disks during the block."""
    made = Disks(home, brokers)
    try:
        made.up()
        yield made
    finally:
        made.down()
