"""Deletions: how the brokers delete a topic.

First a tombstone is written to coordination. From then on the topic is hidden and its name is blocked. Then every
broker removes its part (records, committed offsets of groups, waiting records) and removes itself from the tombstone.
The owner removes the topic and the states of its partitions from coordination, and the tombstone last. Any broker may
die in between: brokers check the tombstones when they start, and the controller takes over from a dead owner.

The deletion does not wait for a broker that is down. The last version of the tombstone stays as a deletion record under
the topic's id, which blocks no name. It is removed when every such broker has removed its part at its next start. A
broker removes a directory only for a tombstone or a record of exactly its topic.

Deletions run in their own tasks, not in the one that follows the image. Removing offsets means writing records, which
may have to wait until the image has advanced.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from tidemill.broker.partitions import Partitions
from tidemill.cluster.core.image import TOPICS, Topic, state_key
from tidemill.cluster.core.tombstones import (
    RECORDS,
    Tombstone,
    decode_tombstone,
    encode_tombstone,
    record_key,
    tombstone_for,
    tombstone_key,
)
from tidemill.cluster.interface import Coordination
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.model.errors import KafkaStorageError, RequestTimedOut, TidemillError, TopicAlreadyExists

FINISHED_S = 60.0
RETRY_S = 1.0

log = structlog.get_logger("tidemill.broker")


class Deletions:
    """This broker's part in the deletion of topics."""

    def __init__(
        self,
        coordination: Coordination,
        metadata: ClusterMetadata,
        partitions: Partitions,
        *,
        node_id: int,
        forget: Callable[[str], Awaitable[None]],
    ) -> None:
        self._coordination = coordination
        self._metadata = metadata
        self._partitions = partitions
        self._node_id = node_id
        self._forget = forget
        self._working: dict[str, asyncio.Task[None]] = {}

    async def delete(self, topic: Topic) -> None:
        """Start a deletion and wait for its end."""
        tombstone = tombstone_for(topic, self._node_id, self._metadata.image.brokers)
        key = tombstone_key(topic.name)
        written = await self._coordination.compare_and_put(key, encode_tombstone(tombstone), 0)
        if written is None:
            raise TopicAlreadyExists(
                f"topic {topic.name} is already being deleted; wait until the deletion has finished"
            )
        await self._metadata.caught_up(written)
        working = self._working.get(topic.name)
        if working is not None:
            await asyncio.wait({working})
            if not working.cancelled() and working.exception() is not None:
                raise KafkaStorageError(f"{topic.name} cannot be removed: {working.exception()}; restart the broker")
        if not await self._metadata.until(lambda: not self._blocked(tombstone), FINISHED_S):
            raise RequestTimedOut(f"topic {topic.name} is deleted, but not every broker has removed it yet")

    async def remove_here(self) -> None:
        """At start, remove the data of topics that were deleted before the stop or since."""
        for tombstone in self._metadata.view.tombstones.values():
            if self._node_id in tombstone.left:
                await self._partitions.store.remove(tombstone.name, str(tombstone.topic_id))
        for key in (await self._coordination.get_prefix(RECORDS)).entries:
            await self._follow_record(key)

    async def _follow_record(self, key: str) -> None:
        """Remove the data that a deletion record names, and remove this broker from the record."""
        while (entry := await self._coordination.get(key)) is not None:
            record = decode_tombstone(entry.value)
            if self._node_id not in record.left:
                return
            await self._partitions.store.remove(record.name, str(record.topic_id))
            left = record.without(self._node_id)
            document = encode_tombstone(left) if left.left else None
            if await self._coordination.compare_and_put(key, document, entry.revision) is not None:
                return

    def look(self) -> None:
        """Start the work that the tombstones require of this broker."""
        for name, tombstone in self._metadata.view.tombstones.items():
            if name not in self._working and self._concerned(tombstone):
                task = self._working[name] = asyncio.create_task(self._work(tombstone))
                task.add_done_callback(partial(self._done, name))

    async def close(self) -> None:
        """Stop; unfinished deletions continue at the next start, or on another broker."""
        working = list(self._working.values())
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        self._working.pop(name, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("topic_removal_failed", topic=name, error=str(error))
        else:
            self.look()

    def _concerned(self, tombstone: Tombstone) -> bool:
        if self._node_id in tombstone.left:
            return True
        return tombstone.owner == self._node_id and tombstone.finished(self._metadata.image.brokers)

    def _blocked(self, tombstone: Tombstone) -> bool:
        now = self._metadata.view.tombstones.get(tombstone.name)
        return now is not None and now.topic_id == tombstone.topic_id

    async def _work(self, tombstone: Tombstone) -> None:
        if self._node_id in tombstone.left:
            await self._partitions.store.remove(tombstone.name, str(tombstone.topic_id))
            await self._try_to_forget(tombstone.name)
        await self._take_out(tombstone)

    async def _try_to_forget(self, name: str) -> None:
        """Remove what groups and timelines know of the topic. On failure, the offsets expire later by their age."""
        try:
            await self._forget(name)
        except TidemillError as error:
            log.warning("topic_offsets_removal_failed", topic=name, error=str(error))

    async def _take_out(self, tombstone: Tombstone) -> None:
        """Remove this broker from the tombstone; after the last one, remove everything from coordination."""
        key = tombstone_key(tombstone.name)
        while True:
            entry = await self._coordination.get(key)
            if entry is None:
                return
            now = decode_tombstone(entry.value)
            if now.topic_id != tombstone.topic_id:
                return
            left = now.without(self._node_id)
            last = left.owner == self._node_id and left.finished(self._metadata.image.brokers)
            if last:
                await self._record(left)
                await self._clear(left)
            document = None if last else encode_tombstone(left)
            if not last and left == now:
                return
            written = await self._coordination.compare_and_put(key, document, entry.revision)
            if written is not None:
                await self._metadata.caught_up(written)
                return

    async def _record(self, tombstone: Tombstone) -> None:
        """Store the deletion record for brokers that are down; safe to repeat after a crash."""
        if tombstone.left:
            await self._coordination.compare_and_put(record_key(tombstone.topic_id), encode_tombstone(tombstone), 0)

    async def _clear(self, tombstone: Tombstone) -> None:
        """Remove everything of the topic except its tombstone."""
        view = self._metadata.view
        keys = [state_key(tombstone.topic_id, index) for index in range(tombstone.partitions)]
        for key in (TOPICS + tombstone.name, *(key for key in keys if view.revision_of(key))):
            while (entry := await self._coordination.get(key)) is not None:
                if await self._coordination.compare_and_put(key, None, entry.revision) is not None:
                    break
