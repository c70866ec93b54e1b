"""The checkpoint of a log: one small file that says what a start may believe.

It names the log's start, the point up to which everything was flushed (so a start checks only what lies behind it;
after a clean shutdown that is nothing), the closed segments with their sizes, and the partition's own state at that
point. A truncation is announced here before it is made, so that a start can finish it.

It is written to a new file that is flushed, then renamed over the old one, then the folder is flushed. The
first line is the CRC of the second; a checkpoint that does not match is as good as none, and then the whole log is
checked.
"""

import json
from typing import Any, NamedTuple

import crc32c

from tidemill.streams.interface import Disk

VERSION = 1
NAME = "checkpoint"
TEMPORARY = ".tmp"


class SegmentNote(NamedTuple):
    """What is known of a segment at the checkpoint."""

    base_offset: int
    size_bytes: int
    largest_timestamp: int
    first_append_ms: int


class Checkpoint(NamedTuple):
    """What a log leaves for its next start."""

    start_offset: int
    end_offset: int
    active: SegmentNote
    closed: tuple[SegmentNote, ...]
    state: dict[str, Any] | None
    cut_to: int = -1
    state_offset: int = -1
    """Up to where `state` knows the log, when that is not all of it: after a cut, what was saved before it counts."""

    @property
    def known_until(self) -> int:
        """The offset that `state` is true for."""
        return self.end_offset if self.state_offset < 0 else self.state_offset


def encode(checkpoint: Checkpoint) -> bytes:
    """The bytes of the file."""
    body = json.dumps({"version": VERSION, **checkpoint._asdict()}, separators=(",", ":")).encode()
    return b"%08x\n%s\n" % (crc32c.crc32c(body), body)


def decode(data: bytes) -> Checkpoint | None:
    """What the file says; None when it is damaged or of another version."""
    try:
        crc, body = data.removesuffix(b"\n").split(b"\n", 1)
        if int(crc, 16) != crc32c.crc32c(body):
            return None
        fields = json.loads(body)
        if fields.pop("version") != VERSION:
            return None
        closed = tuple(SegmentNote(*row) for row in fields.pop("closed"))
        return Checkpoint(**fields | {"active": SegmentNote(*fields["active"]), "closed": closed})
    except (ValueError, KeyError, TypeError):
        return None


def read(disk: Disk, folder: str) -> Checkpoint | None:
    """The checkpoint of the log in `folder`."""
    path = f"{folder}/{NAME}"
    try:
        size = disk.size(path)
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return decode(disk.pread(file, size, 0))
    finally:
        disk.close(file)


def write(disk: Disk, folder: str, checkpoint: Checkpoint) -> None:
    """Put the checkpoint in place of the old one; safe when this returns."""
    fresh = f"{folder}/{NAME}{TEMPORARY}"
    file = disk.open(fresh, create=True)
    try:
        disk.truncate(file, 0)
        disk.write(file, [encode(checkpoint)], 0)
        disk.fdatasync(file)
    finally:
        disk.close(file)
    disk.rename(fresh, f"{folder}/{NAME}")
    disk.fsync_dir(folder)
