"""The one way into the journal: entries are written in order, many requests to a batch, and replayed when durable.

While one batch is on its way to the disk, what comes meanwhile gathers for the next; so a flush is shared by everyone
who waited for it. Entries of one `write` stay together, all or none. A batch that fails fails for everyone in it and
changes nothing. Replaying here, in the order of the journal, is what makes memory never differ from the journal.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from tidemill.groups.core.entries import GroupEntry, weight
from tidemill.groups.core.records import encode
from tidemill.groups.core.shard import Shard
from tidemill.model.errors import (
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from tidemill.records.journal import Journal

BATCH_ENTRIES_MAX = 2_000
"""More entries of one request are written as a batch of their own."""
ENCODED_IN_PLACE_MAX = 1_000
"""Entries that are made of more things are encoded in a thread."""
REPLAYED_AT_ONCE = 1_000
"""After so many entries of one request, others have the event loop."""


class _WaitingEntries(NamedTuple):
    entries: tuple[GroupEntry, ...]
    records: list[tuple[bytes, bytes | None]] | None  # None while many entries are not encoded
    done: asyncio.Future[None]


class ShardWriter:
    """Writes for one shard."""

    def __init__(self, journal: Journal, partition: int, shard: Shard) -> None:
        self._journal = journal
        self._partition = partition
        self._shard = shard
        self._queue: deque[_WaitingEntries] = deque()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def submit(self, entries: tuple[GroupEntry, ...]) -> asyncio.Future[None]:
        """Queue the entries; the future is done when they are durable and replayed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._closed:
            done.set_exception(NotCoordinator())
            done.exception()  # whoever asked may be gone
            return done
        if not entries:
            done.set_result(None)
            return done
        records = _encoded(entries) if sum(map(weight, entries)) <= ENCODED_IN_PLACE_MAX else None
        self._queue.append(_WaitingEntries(entries, records, done))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return done

    def settled(self) -> asyncio.Future[None]:
        """Done when all that was queued before is durable and replayed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._task is None:
            done.set_result(None)
        else:
            self._queue.append(_WaitingEntries((), [], done))
        return done

    async def close(self) -> None:
        """Finish what is queued, then take nothing more."""
        self._closed = True
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        try:
            while self._queue:
                await self._write(self._take())
        finally:
            self._task = None

    def _take(self) -> list[_WaitingEntries]:
        batch = [self._queue.popleft()]
        size = len(batch[0].entries)
        while self._queue and size + len(self._queue[0].entries) <= BATCH_ENTRIES_MAX:
            batch.append(self._queue.popleft())
            size += len(batch[-1].entries)
        return batch

    async def _write(self, batch: list[_WaitingEntries]) -> None:
        try:
            records: list[tuple[bytes, bytes | None]] = []
            for waiting in batch:
                if waiting.records is None:
                    records += await asyncio.to_thread(_encoded, waiting.entries)
                else:
                    records += waiting.records
            if records:
                await self._journal.append(self._partition, records)
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            refusal = _as_told_to_members(error)
            for waiting in batch:
                if not waiting.done.done():
                    waiting.done.set_exception(refusal)
                    waiting.done.exception()  # whoever asked may be gone
            return
        for waiting in batch:
            for number, entry in enumerate(waiting.entries, 1):
                self._shard.replay(entry)
                if not number % REPLAYED_AT_ONCE:
                    await asyncio.sleep(0)
            if not waiting.done.done():
                waiting.done.set_result(None)


def _encoded(entries: tuple[GroupEntry, ...]) -> list[tuple[bytes, bytes | None]]:
    return [encode(entry) for entry in entries]


def _as_told_to_members(error: Exception) -> KafkaError:
    """The error in words that members know: a journal that is led elsewhere is a coordinator that is elsewhere.

    One whose disk takes nothing soon will be.
    """
    if isinstance(error, NotLeaderOrFollower | FencedLeaderEpoch | KafkaStorageError):
        return NotCoordinator(str(error))
    if isinstance(error, NotEnoughReplicas | NotEnoughReplicasAfterAppend | RequestTimedOut):
        return CoordinatorNotAvailable(str(error))
    return error if isinstance(error, KafkaError) else CoordinatorNotAvailable(str(error))
