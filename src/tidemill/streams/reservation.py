"""Reserves offsets ahead of the records, so that a log that lost files never reuses an offset.

A start that finds files missing cannot see where the log ended. So a bound above a batch's offsets is durable outside
of the log before the batch is acknowledged. The bound moves in large steps. One small write covers very many batches,
and the next step is recorded in the background before the current one is used up.

The log is flushed before the first bound is recorded. So every log with a bound has a checkpoint, and a log with a
bound but no checkpoint has lost it.
"""

import asyncio
from collections.abc import Awaitable, Callable

RESERVED_OFFSETS = 1_000_000
"""How far ahead of the log its offsets are reserved. This is the largest gap that missing files can leave."""


class Reservation:
    """The reserved offsets of one partition. `record` makes a bound durable and returns the durable bound."""

    __slots__ = ("_flush", "_offset", "_record", "_recording", "_turn", "due_offset", "waiting")

    def __init__(
        self, offset: int, flush: Callable[[int], Awaitable[None]], record: Callable[[int], Awaitable[int]]
    ) -> None:
        self._offset = offset
        self._flush = flush
        self._record = record
        self._recording: asyncio.Task[None] | None = None
        self.due_offset = offset - RESERVED_OFFSETS // 2
        """When the log reaches this offset, the next step must be recorded (`cover`)."""
        self.waiting = 0
        """How many batches wait for a step. Later batches wait behind them (`cover`), so that calls return in order."""
        self._turn = asyncio.Lock()

    async def cover(self, next_offset: int) -> None:
        """Record the next step. Return when everything before `next_offset` is covered, or recording failed for now."""
        if self._recording is None:
            self._recording = asyncio.get_running_loop().create_task(self._extend(next_offset))
            self._recording.add_done_callback(self._ended)
        if next_offset <= self._offset and not self.waiting:
            return
        self.waiting += 1
        try:
            async with self._turn:
                await self._wait_for(next_offset)
        finally:
            self.waiting -= 1

    async def _wait_for(self, next_offset: int) -> None:
        if next_offset > self._offset and self._recording is not None:
            await asyncio.shield(self._recording)
        if next_offset > self._offset:
            await self._extend(next_offset)

    async def _extend(self, next_offset: int) -> None:
        await self._flush(next_offset)
        self._offset = max(self._offset, await self._record(next_offset + RESERVED_OFFSETS))
        self.due_offset = self._offset - RESERVED_OFFSETS // 2

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._recording = None
        if not task.cancelled():
            task.exception()  # batches that need the step get the error from their own flush
