"""The share partitions whose partitions this broker leads, opened when a member first fetches from one."""

import asyncio
from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

from tidemill.model.errors import CoordinatorNotAvailable, KafkaError, NotLeaderOrFollower, UnknownTopicOrPartition
from tidemill.shares.core.durable_state import NO_START, ShareKey, StateWrite
from tidemill.shares.core.share_partition import SharePartition
from tidemill.shares.counts import CountsByPair
from tidemill.shares.interface import OpenLog, ShareLog, ShareStateStore
from tidemill.shares.live_partition import LiveSharePartition, SharePolicy

StartOf = Callable[[str], tuple[bool, int | None]]
"""Where a group begins to read: at the first record or not, or so many milliseconds before now."""


class SharePartitions:
    """Opens share partitions, and closes those that this broker no longer leads."""

    def __init__(
        self,
        store: ShareStateStore,
        open_log: OpenLog,
        policy_of: Callable[[str], SharePolicy],
        start_of: StartOf,
        *,
        clock_ms: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._open_log = open_log
        self._policy_of = policy_of
        self._start_of = start_of
        self._clock_ms = clock_ms
        self._steady_ms = steady_ms
        self.counts = CountsByPair()
        self._open: dict[ShareKey, LiveSharePartition] = {}
        self._opening: WeakValueDictionary[ShareKey, asyncio.Lock] = WeakValueDictionary()

    def policy(self, group_id: str) -> SharePolicy:
        """The settings of a group."""
        return self._policy_of(group_id)

    def opened(self) -> Iterable[LiveSharePartition]:
        """The open share partitions."""
        return list(self._open.values())

    def current(self, key: ShareKey) -> LiveSharePartition | None:
        """The open share partition, if this broker leads it."""
        known = self._open.get(key)
        return known if known is not None and known.is_current else None

    async def find(self, key: ShareKey, topic: str) -> LiveSharePartition:
        """The share partition; its state is read first if needed."""
        known = self._open.get(key)
        if known is not None and known.is_current:
            return known
        lock = self._opening.get(key)
        if lock is None:
            lock = self._opening[key] = asyncio.Lock()
        async with lock:
            known = self._open.get(key)
            if known is not None and known.is_current:
                return known
            if known is not None:
                known.close()
                await known.settled()  # otherwise the state is read before an acknowledgement that is on its way
            live = self._open[key] = await self._read(key, topic)
            return live

    def release(self, group_id: str, member: str, *, was_delivered: bool) -> None:
        """End all locks of a member, in every partition."""
        for key, live in list(self._open.items()):
            if key.group_id == group_id and live.is_current:
                live.release(member, was_delivered=was_delivered)

    def forget(self, group_id: str) -> None:
        """The group has no members here: read its state again when it is needed, which may be another one then."""
        for key, live in list(self._open.items()):
            if key.group_id == group_id:
                live.close()

    async def tidy(self) -> None:
        """Drop what this broker no longer leads, or does not need."""
        for key, live in list(self._open.items()):
            if not live.is_current:
                live.close()
                await live.settled()
                if self._open.get(key) is live:
                    del self._open[key]

    async def close(self) -> None:
        """Close everything, after what was to be stored is stored."""
        for live in list(self._open.values()):
            live.close()
            await live.settled()

    async def _read(self, key: ShareKey, topic: str) -> LiveSharePartition:
        shared_log = self._open_log(topic, key.partition)
        epoch = shared_log.leader_epoch
        try:
            found = await self._store.read(key, epoch)
            start_offset = found.start_offset
            if start_offset == NO_START:
                start_offset = await self._start(key.group_id, shared_log)
                await self._store.write(key, StateWrite(found.state_epoch, epoch, start_offset, ()))
        except UnknownTopicOrPartition:
            raise
        except KafkaError as error:
            raise CoordinatorNotAvailable(f"the state of the share partition cannot be read: {error}") from error
        if not shared_log.leads or shared_log.leader_epoch != epoch:
            raise NotLeaderOrFollower("this broker does not lead the partition any more; refresh the metadata")
        core = SharePartition(start_offset, found.batches, state_epoch=found.state_epoch)
        core.trim(shared_log.start_offset)
        core.delay(self._steady_ms(), self._policy_of(key.group_id).delivery)
        return LiveSharePartition(
            key,
            core,
            shared_log,
            self._store,
            lambda: self._policy_of(key.group_id),
            self._steady_ms,
            self.counts.of(key.group_id, topic),
        )

    async def _start(self, group_id: str, shared_log: ShareLog) -> int:
        """Where a group without a stored start begins."""
        await shared_log.settled()
        from_first, before_ms = self._start_of(group_id)
        end_offset = shared_log.end_offset(committed=False)
        if from_first:
            return shared_log.start_offset
        if before_ms is None:
            return end_offset
        found = await shared_log.offset_at(self._clock_ms() - before_ms)
        return end_offset if found is None else found
