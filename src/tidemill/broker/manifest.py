"""The manifest of a data directory: which partitions have a folder in it, and where their logs ended at the last stop.

A partition is added after its folder is durable, and taken out before its folder is deleted. So a partition that the
manifest has and that has no folder was removed by something other than the broker, and its offsets were given out once.
An end may be older than the log: it is written when partitions come and go and when the broker stops, never when
records are written.
"""

import json
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog

FILE = "manifest.json"
VERSION = 1

log = structlog.get_logger("tidemill.broker")


class PartitionKey(NamedTuple):
    """A partition of a topic with this id."""

    topic_id: str
    partition: int


def encode(ends: Mapping[PartitionKey, int]) -> bytes:
    """The bytes of the file: the CRC-32 of the second line, then the line."""
    rows = [[*key, end] for key, end in sorted(ends.items())]
    body = json.dumps({"version": VERSION, "partitions": rows}, separators=(",", ":")).encode()
    return b"%08x\n%s\n" % (zlib.crc32(body), body)


def decode(data: bytes) -> dict[PartitionKey, int] | None:
    """What the file says; None when it is damaged or of another version."""
    try:
        crc, body = data.removesuffix(b"\n").split(b"\n", 1)
        if int(crc, 16) != zlib.crc32(body):
            return None
        read = json.loads(body)
        if read["version"] != VERSION:
            return None
        return {PartitionKey(topic_id, index): end for topic_id, index, end in read["partitions"]}
    except (ValueError, KeyError, TypeError):
        return None


def read(data_dir: Path) -> dict[PartitionKey, int]:
    """What the directory had; nothing when an older version wrote it or the file is damaged."""
    try:
        found = decode((data_dir / FILE).read_bytes())
    except FileNotFoundError:
        return {}
    if found is None:
        log.error("manifest damaged", file=str(data_dir / FILE), effect="missing partition folders are not noticed")
    return found or {}


def write(data_dir: Path, ends: Mapping[PartitionKey, int]) -> None:
    """Replace the file; durable when this returns. Blocks."""
    fresh = data_dir / f"{FILE}.new"
    try:
        with fresh.open("wb") as file:
            file.write(encode(ends))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(data_dir / FILE)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    handle = os.open(data_dir, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
