"""The manifest of a data directory: which partitions have a directory in it, and which offsets they may have assigned.

A partition is added after its directory is durable, and removed before its directory is deleted. So a partition that is
in the manifest and has no directory was removed by something other than the broker, and its offsets were used once.

The bound of a partition is never below an acknowledged offset. It is recorded ahead of the records
(streams/reservation.py), and a stop lowers it to the end of the log. It counts only when files are missing.

A replica that lost records is listed under `lost` until it is no longer counted as in sync, whatever crashes meanwhile.
"""

import asyncio
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import structlog

from tidemill.durable_files import replace_file

FILE = "manifest.json"
VERSION = 1

log = structlog.get_logger("tidemill.broker")


class PartitionKey(NamedTuple):
    """A partition of a topic with this id."""

    topic_id: str
    partition: int


class Contents(NamedTuple):
    """The content of the file."""

    bounds: Mapping[PartitionKey, int]
    lost: frozenset[PartitionKey]


def encode(contents: Contents) -> bytes:
    """Encode the file: the CRC-32 of the second line, then the line."""
    rows = [[*key, bound] for key, bound in sorted(contents.bounds.items())]
    fields = {"version": VERSION, "partitions": rows, "lost": sorted(contents.lost)}
    body = json.dumps(fields, separators=(",", ":")).encode()
    return b"%08x\n%s\n" % (zlib.crc32(body), body)


def decode(data: bytes) -> Contents | None:
    """Decode the file; None when it is damaged or of another version."""
    try:
        crc, body = data.removesuffix(b"\n").split(b"\n", 1)
        if int(crc, 16) != zlib.crc32(body):
            return None
        read = json.loads(body)
        if read["version"] != VERSION:
            return None
        bounds = {PartitionKey(topic_id, index): bound for topic_id, index, bound in read["partitions"]}
        return Contents(bounds, frozenset(PartitionKey(*each) for each in read.get("lost", [])))
    except (ValueError, KeyError, TypeError):
        return None


def read(data_dir: Path) -> Contents | None:
    """The manifest of the directory; None when the file is missing or damaged."""
    try:
        return decode((data_dir / FILE).read_bytes())
    except FileNotFoundError:
        return None


def write(data_dir: Path, contents: Contents) -> None:
    """Replace the file; durable when this returns. Blocks."""
    replace_file(data_dir / FILE, encode(contents))


class Manifest:
    """The manifest of a running broker; changes are written in the background, many of them at once."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        found = read(data_dir)
        self.problem = "" if found is not None else "damaged" if (data_dir / FILE).exists() else "missing"
        """Why the previous content is unknown; empty when it is known."""
        self.bounds: dict[PartitionKey, int] = dict(found.bounds) if found is not None else {}
        self.lost: set[PartitionKey] = set(found.lost) if found is not None else set()
        self._writing: asyncio.Task[None] | None = None
        self._changed = False
        self._failed = False

    def change(self) -> None:
        """Write the changes of `bounds` and `lost`."""
        self._changed = True
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())

    async def written(self) -> bool:
        """Wait for the changes; False when they could not be written."""
        while self._writing is not None:
            await asyncio.wait({self._writing})
        return not self._failed

    async def raise_bound(self, key: PartitionKey, bound: int) -> int:
        """Record that offsets below `bound` may be assigned; the bound that is durable."""
        before = self.bounds.get(key, 0)
        self.bounds[key] = max(before, bound)
        self.change()
        # A disk that is too full for the manifest is too full for records. Only the broker's own logs continue.
        return self.bounds.get(key, 0) if await self.written() else before

    async def _write(self) -> None:
        try:
            while self._changed:
                self._changed = False
                contents = Contents(dict(self.bounds), frozenset(self.lost))
                await asyncio.to_thread(write, self._data_dir, contents)
                self._failed = False
        except OSError as error:
            self._failed = True
            log.warning("manifest_write_failed", error=str(error))
        finally:
            self._writing = None
