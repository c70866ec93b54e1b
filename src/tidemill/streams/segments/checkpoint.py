"""The checkpoint of a log: one small file that records what a start may trust.

It has the log's start offset, the end of the flushed data, the closed segments with their sizes, and the partition
state at that point. A start checks only the data after the flushed end, which is nothing after a clean shutdown. A
truncation is recorded here before it is made, so that a start can finish it.

The checkpoint is written to a new file and flushed, then renamed over the old one, then the folder is flushed. The
first line is the CRC of the second. A checkpoint with a wrong CRC counts as missing, and the whole log is checked.

A truncation needs a second checkpoint when it is done. Its space is reserved before the first one is written, so that a
full disk rejects a truncation before it begins, and never in the middle.
"""

import json
from contextlib import suppress
from typing import Any, NamedTuple

import crc32c

from tidemill.streams.interface import Disk

VERSION = 1
NAME = "checkpoint"
TEMPORARY = ".tmp"
SPARE = "checkpoint.spare"
SPARE_BYTES = 8192
"""What the spare file has for the saved state and the segments that the next checkpoint may have in addition."""


class SegmentNote(NamedTuple):
    """The facts of a segment at the checkpoint."""

    base_offset: int
    size_bytes: int
    largest_timestamp: int
    first_append_ms: int


class Checkpoint(NamedTuple):
    """The data that a log stores for its next start."""

    start_offset: int
    end_offset: int
    active: SegmentNote
    closed: tuple[SegmentNote, ...]
    state: dict[str, Any] | None
    cut_to: int = -1
    state_offset: int = -1
    """The offset up to which `state` is valid, if not the end. After a truncation the state saved before it applies."""

    @property
    def known_until(self) -> int:
        """The offset for which `state` is valid."""
        return self.end_offset if self.state_offset < 0 else self.state_offset


def encode(checkpoint: Checkpoint) -> bytes:
    """Return the bytes of the file."""
    body = json.dumps({"version": VERSION, **checkpoint._asdict()}, separators=(",", ":")).encode()
    return b"%08x\n%s\n" % (crc32c.crc32c(body), body)


def decode(data: bytes) -> Checkpoint | None:
    """Return the checkpoint, or None when the file is damaged or has another version."""
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
    """Read the checkpoint of the log in `folder`."""
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
    """Replace the checkpoint. The new one is durable when this returns."""
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


def reserve(disk: Disk, folder: str, checkpoint: Checkpoint) -> None:
    """Reserve the space of a checkpoint like this one, for `write_reserved`."""
    file = disk.open(f"{folder}/{SPARE}", create=True)
    try:
        disk.write(file, [bytes(len(encode(checkpoint)) + SPARE_BYTES)], 0)
    finally:
        disk.close(file)


def write_reserved(disk: Disk, folder: str, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint, in the space that was reserved. The new one is durable when this returns."""
    spare, data = f"{folder}/{SPARE}", encode(checkpoint)
    file = disk.open(spare, create=True)
    try:
        disk.write(file, [data], 0)
        disk.truncate(file, len(data))
        disk.fdatasync(file)
    finally:
        disk.close(file)
    disk.rename(spare, f"{folder}/{NAME}")
    disk.fsync_dir(folder)


def remove_spare(disk: Disk, folder: str) -> None:
    """Remove the space that a truncation had reserved before a crash."""
    with suppress(FileNotFoundError):
        disk.remove(f"{folder}/{SPARE}")
