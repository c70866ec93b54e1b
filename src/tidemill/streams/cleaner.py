"""The shell of compaction: reads the log, lets the core decide, rewrites segment by segment.

A pass works beside readers and producers. Each closed segment is written anew under another name; only the renaming
holds back writers. One pass at a time runs in a broker, so that its memory for keys is bounded. A pass that is
stopped half-way has rewritten some segments and not others: both are right, and the next pass begins anew.
"""

import asyncio
from collections.abc import AsyncIterator

from tidemill.records.header import Buffer
from tidemill.streams.core.compaction import AbortedRecords, Compactor, KeyMap, Plan
from tidemill.streams.core.leader import Leader
from tidemill.streams.core.retention import SegmentFacts
from tidemill.streams.interface import StreamLog
from tidemill.streams.writer import Writer


class Cleaner:
    """Compacts one partition."""

    def __init__(self, log: StreamLog, leader: Leader, writer: Writer) -> None:
        self._log = log
        self._leader = leader
        self._writer = writer
        self._changed = False

    async def run(self, plan: Plan, now_ms: int) -> None:
        """One pass. The log must have been saved, so that a start knows its closed segments as flushed."""
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
        for facts in self._log.segments()[:-1]:
            if facts.base_offset < end_offset:
                await self._rewrite(facts, compactor)
        self._leader.aborted.forget(compactor.emptied)
        self._leader.clean_until = end_offset

    async def _learn(self, keys: KeyMap, plan: Plan) -> int:
        """Take in the keys of the dirty part; the offset up to which they fit."""
        async for header, batch in self._log.scan(plan.dirty_offset):
            if header.base_offset >= plan.end_offset:
                break
            if not keys.cover(batch):
                return header.base_offset
            await asyncio.sleep(0)
        return plan.end_offset

    async def _rewrite(self, facts: SegmentFacts, compactor: Compactor) -> None:
        self._changed = False
        rewritten = await self._log.rewrite(facts.base_offset, self._kept(facts, compactor))
        if self._changed:
            async with self._writer.exclusive():
                await self._log.swap(rewritten)

    async def _kept(self, facts: SegmentFacts, compactor: Compactor) -> AsyncIterator[Buffer]:
        """What stays of a segment."""
        if facts.size_bytes == 0:
            return
        async for header, batch in self._log.scan(facts.base_offset):
            if header.base_offset >= facts.next_offset:
                break
            kept = compactor.replace(batch)
            self._changed = self._changed or kept is not batch
            if kept is not None:
                yield kept
            await asyncio.sleep(0)
