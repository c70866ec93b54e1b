"""Coordination for one broker: keys in memory, every change in a journal in the data directory.

The journal is a text file, one line a change: the CRC-32 of the rest in hexadecimal, a space, a JSON list. A write is
answered after its line is on disk, and the next is written after that. At start the lines are replayed; a last line
that is cut or damaged was never answered and is cut off with a warning, damage before it is refused: nobody may guess
what was agreed. When most lines are history the journal is written anew beside the old one, flushed, and renamed over
it at the next start. A write that finds no room is cut back, and the next may succeed. After a failed flush nothing is
known about the file any more, so every later write is refused until a restart.

Keys of a session live in memory only: a process that ended has no sessions.
"""

import asyncio
import json
import os
import zlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import structlog

from tidemill.cluster.interface import Changed, Entry, Guard, Listing, Session, WatchGap
from tidemill.model.errors import KafkaStorageError

JOURNAL = "coordination.journal"
HISTORY_MAX = 10_000
"""Changes that a watch may still begin before."""
REWRITE_LINES_MIN = 1_000
REWRITE_SHARE = 4
"""The journal is rewritten when it has this many times more lines than there are keys."""

log = structlog.get_logger("tidemill.cluster")


class LocalSession:
    """The liveness of the only broker: it lives as long as the process keeps it."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self._ended = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Whether this broker may still act as a member."""
        return not self._ended.is_set()

    async def ended(self) -> None:
        """Wait until it may not."""
        await self._ended.wait()

    def end(self) -> None:
        """It is over."""
        self._ended.set()


class LocalCoordination:
    """Keys of one broker, durable in its data directory."""

    shared = False

    def __init__(self, directory: Path) -> None:
        self._path = directory / JOURNAL
        self._entries: dict[str, Entry] = {}
        self._revision = 0
        self._lines = 0
        self._history: deque[Changed] = deque(maxlen=HISTORY_MAX)
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._failed: OSError | None = None
        self._file = -1

    @classmethod
    async def open(cls, directory: Path) -> "LocalCoordination":
        """Replay the journal, or begin one."""
        self = cls(directory)
        self._load()
        return self

    async def get(self, key: str) -> Entry | None:
        """The key's entry, if there is one."""
        return self._entries.get(key)

    async def get_prefix(self, prefix: str) -> Listing:
        """All entries whose key begins so."""
        found = {key: entry for key, entry in self._entries.items() if key.startswith(prefix)}
        return Listing(found, self._revision)

    async def compare_and_put(
        self,
        key: str,
        value: bytes | None,
        revision: int,
        *,
        session: Session | None = None,
        guard: Guard | None = None,
    ) -> int | None:
        """Write (or with None remove) a key that is at `revision`; the new revision, or None when it is not.

        A caller that goes away does not stop the write half way: memory and journal change together.
        """
        return await asyncio.shield(asyncio.ensure_future(self._put(key, value, revision, session, guard)))

    async def _put(
        self, key: str, value: bytes | None, revision: int, session: Session | None, guard: Guard | None
    ) -> int | None:
        async with self._writing:
            if self._revision_of(key) != revision or (guard and self._revision_of(guard.key) != guard.revision):
                return None
            change = Changed(key, value, self._revision + 1)
            if isinstance(session, LocalSession):
                session.keys.add(key)
            else:
                await self._write([change])
            await self._tell(change)
            return change.revision

    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Changed]:
        """Every change under the prefix later than `after_revision`."""
        seen = after_revision
        while True:
            async with self._changed:
                while self._revision <= seen and self._file >= 0:
                    await self._changed.wait()
                if self._file < 0:
                    return
                if not self._history or self._history[0].revision > seen + 1:
                    raise WatchGap
                fresh = [change for change in self._history if change.revision > seen]
            for change in fresh:
                seen = change.revision
                if change.key.startswith(prefix):
                    yield change

    @asynccontextmanager
    async def session(self, ttl_ms: int) -> AsyncIterator[Session]:  # noqa: ARG002 -- one process: nothing to renew
        """A session that lives while the block runs."""
        mine = LocalSession()
        try:
            yield mine
        finally:
            mine.end()
            for key in sorted(mine.keys):
                if key in self._entries:
                    await self._tell(Changed(key, None, self._revision + 1))

    async def close(self) -> None:
        """Let go of the journal; watches end."""
        async with self._writing, self._changed:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            self._changed.notify_all()

    def _revision_of(self, key: str) -> int:
        held = self._entries.get(key)
        return held.revision if held else 0

    async def _tell(self, change: Changed) -> None:
        self._apply(change)
        self._history.append(change)
        async with self._changed:
            self._changed.notify_all()

    def _apply(self, change: Changed) -> None:
        self._revision = change.revision
        if change.value is None:
            self._entries.pop(change.key, None)
        else:
            self._entries[change.key] = Entry(change.value, change.revision)

    async def _write(self, changes: list[Changed]) -> None:
        if self._failed is not None or self._file < 0:
            raise KafkaStorageError(f"{self._path} takes no more changes: {self._failed or 'it is closed'}")
        text = b"".join(map(_line, changes))
        try:
            await asyncio.to_thread(_append, self._file, text)
        except _CutBack as error:
            raise KafkaStorageError(f"{self._path} cannot be written: {error}; free space and try again") from error
        except OSError as error:
            self._failed = error
            raise KafkaStorageError(f"{self._path} cannot be written: {error}; free space and restart") from error
        self._lines += len(changes)

    def _load(self) -> None:
        text = self._path.read_bytes() if self._path.exists() else b""
        good = 0
        for position, change in _read(text, self._path):
            self._apply(change)
            self._lines += 1
            good = position
        if good < len(text):
            log.warning("cut a change that was never finished", file=str(self._path), bytes=len(text) - good)
        if self._lines > max(REWRITE_LINES_MIN, REWRITE_SHARE * len(self._entries)):
            self._rewrite()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        if good < len(text) and os.fstat(self._file).st_size == len(text):
            os.ftruncate(self._file, good)
            os.fsync(self._file)
        _sync_directory(self._path.parent)

    def _rewrite(self) -> None:
        """The journal without its history. Revisions stay, so that they never go back."""
        beside = self._path.with_suffix(".new")
        kept = sorted(self._entries.items(), key=lambda item: item[1].revision)
        last = Changed("", None, self._revision)
        with beside.open("wb") as file:
            file.writelines(_line(Changed(key, entry.value, entry.revision)) for key, entry in kept)
            file.write(_line(last))
            file.flush()
            os.fsync(file.fileno())
        beside.rename(self._path)
        self._lines = len(kept) + 1


def _line(change: Changed) -> bytes:
    value = None if change.value is None else change.value.decode("utf-8", "surrogateescape")
    body = json.dumps([change.revision, change.key, value], separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _parse(line: bytes) -> Changed | None:
    crc, _, body = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(body):
        return None
    revision, key, value = json.loads(body)
    return Changed(key, None if value is None else value.encode("utf-8", "surrogateescape"), revision)


def _read(text: bytes, path: Path) -> Iterator[tuple[int, Changed]]:
    """Each change with the position after it, up to a damaged last line."""
    position = 0
    for line in BytesIO(text):
        change = _parse(line)
        if change is None:
            if position + len(line) < len(text):
                raise KafkaStorageError(f"{path} is damaged at byte {position}, before its end; restore it from a copy")
            return
        position += len(line)
        yield position, change


class _CutBack(Exception):
    """Nothing was written: what was written of it is gone again."""


def _append(file: int, text: bytes) -> None:
    size = os.fstat(file).st_size
    try:
        reason = f"only {os.write(file, text)} of {len(text)} bytes were written"
    except OSError as error:
        reason = str(error)
    if os.fstat(file).st_size != size + len(text):
        os.ftruncate(file, size)
        raise _CutBack(reason)
    os.fdatasync(file)


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
