"""Runs compaction for one partition: reads the log, applies `core.compaction`, and rewrites segment by segment.

A pass runs concurrently with readers and producers. It processes the log in pieces. Each piece is read, decided on and
written on a thread. Then the pass sleeps, so that it never takes more than `WORK_SHARE` of the time. The writer is
paused only while a rewritten segment replaces the old ones. Small adjacent segments are merged, so that the number of
files does not grow with the age of the log.

One pass runs at a time in a broker, which bounds the memory for keys. A pass that is stopped early has rewritten some
segments and not others. Both states are correct, because the pass goes from old to new; the next pass starts again. A
pass is stopped between two pieces and never cancelled, because a thread may be writing to the file.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial

from tidemill.model.errors import TidemillError
from tidemill.records.header import Buffer, read_header
from tidemill.streams.core.compaction import AbortedRecords, CompactionPlan, Compactor, KeyMap, groups
from tidemill.streams.core.leader import Leader
from tidemill.streams.core.retention import SegmentFacts
from tidemill.streams.interface import RewritableLog
from tidemill.streams.writer import PartitionWriter

PIECE_BYTES = 256 * 1024
WORK_SHARE = 0.5


class CleaningStopped(TidemillError):
    """The partition is closing, so the pass stops before its next piece."""


class Cleaner:
    """Compacts one partition."""

    def __init__(self, log: RewritableLog, leader: Leader, writer: PartitionWriter) -> None:
        self._log = log
        self._leader = leader
        self._writer = writer
        self._stopping = False
        self._changed = False

    def stop(self) -> None:
        """Stop the pass before its next piece."""
        self._stopping = True

    def resume(self) -> None:
        """Allow the next pass to run."""
        self._stopping = False

    async def run(self, plan: CompactionPlan, now_ms: int) -> None:
        """Run one pass. The caller has saved a checkpoint, so that the next start treats closed segments as flushed."""
        aborted = AbortedRecords(self._leader.aborted.ranges())
        keys = KeyMap(aborted)
        end_offset = await self._learn(keys, plan)
        compactor = Compactor(
            keys,
            aborted,
            self._leader.producers.entries(),
            end_offset=end_offset,
            now_ms=now_ms,
            delete_retention_ms=self._log.settings.delete_retention_ms,
        )
        covered = [facts for facts in self._log.segments()[:-1] if facts.base_offset < end_offset]
        for group in groups(covered, self._log.settings.segment_bytes):
            await self._rewrite(group, compactor)
        self._leader.aborted.forget(compactor.emptied)
        self._leader.clean_until = end_offset

    async def _learn(self, keys: KeyMap, plan: CompactionPlan) -> int:
        """Record the keys of the dirty part. Return the offset up to which they fit."""
        async with aclosing(self._pieces(plan.dirty_offset, plan.end_offset)) as pieces:
            async for piece in pieces:
                full_at = await self._log.aside(partial(_cover, keys, piece))
                if full_at is not None:
                    return full_at
        return plan.end_offset

    async def _rewrite(self, group: Sequence[SegmentFacts], compactor: Compactor) -> None:
        self._changed = len(group) > 1
        start, end = group[0].base_offset, group[-1].next_offset
        async with aclosing(self._kept(start, end, compactor)) as kept:
            rewritten = await self._log.rewrite(start, end, kept)
        if not self._changed:
            await self._log.discard(rewritten)
            return
        async with self._writer.exclusive():
            await self._log.swap(rewritten)

    async def _kept(self, start: int, end: int, compactor: Compactor) -> AsyncGenerator[Sequence[Buffer], None]:
        """Yield the batches between two offsets that compaction keeps."""
        async with aclosing(self._pieces(start, end)) as pieces:
            async for piece in pieces:
                kept, changed = await self._log.aside(partial(_replace, compactor, piece))
                self._changed = self._changed or changed
                if kept:
                    yield kept

    async def _pieces(self, start: int, end: int) -> AsyncGenerator[Sequence[Buffer], None]:
        """Yield the batches between two offsets in pieces, and sleep between two pieces."""
        clock = asyncio.get_running_loop().time
        began, piece, size = clock(), list[Buffer](), 0
        async with aclosing(self._log.scan(start)) as scan:
            async for header, batch in scan:
                if header.base_offset >= end:
                    break
                piece.append(batch)
                size += len(batch)
                if size >= PIECE_BYTES:
                    yield piece
                    await asyncio.sleep((clock() - began) * (1 / WORK_SHARE - 1))
                    self._check_stop()
                    began, piece, size = clock(), [], 0
        self._check_stop()
        if piece:
            yield piece

    def _check_stop(self) -> None:
        if self._stopping:
            raise CleaningStopped


def _cover(keys: KeyMap, piece: Sequence[Buffer]) -> int | None:
    """Record the keys of the batches. Return the first offset that did not fit, or None."""
    for batch in piece:
        if not keys.cover(batch):
            return read_header(batch).base_offset
    return None


def _replace(compactor: Compactor, piece: Sequence[Buffer]) -> tuple[list[Buffer], bool]:
    """Return the batches that compaction keeps, and whether anything was removed."""
    replaced = [compactor.replace(batch) for batch in piece]
    changed = any(kept is None or kept != batch for kept, batch in zip(replaced, piece, strict=True))
    return [kept for kept in replaced if kept is not None], changed
