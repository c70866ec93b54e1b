"""Topics: how one is created, grows, changes its settings and goes.

The walk of a change: check it against the image -> write it to coordination, where it is durable -> open or close
partitions -> the next image, which is when clients see it. A crash after the write is finished at the next start: a
created topic is opened empty, and a topic that was being deleted carries a mark in coordination until nothing of it
is left on disk, so that a name never comes back with old records.

Changes run one at a time, each in a task of its own: a client that goes away does not leave half a topic.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import structlog

from tidemill.broker.partitions import Partitions
from tidemill.cluster.core.image import (
    TOPICS,
    Image,
    PartitionInfo,
    PartitionsAdded,
    Topic,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    decode_topic,
    encode_topic,
    image_of,
)
from tidemill.cluster.core.placement import place, place_as_told
from tidemill.cluster.interface import Coordination
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaStorageError,
    UnknownTopicOrPartition,
)
from tidemill.model.topics import INTERNAL, check_topic_name

UNSET = -1
"""What clients send for "the broker's default"."""

T = TypeVar("T")

log = structlog.get_logger("tidemill.broker")


class Topics:
    """The image of this broker and the changes to it."""

    def __init__(
        self,
        coordination: Coordination,
        partitions: Partitions,
        *,
        settings: BrokerSettings,
        brokers: Callable[[], Sequence[int]],
        new_id: Callable[[], UUID],
    ) -> None:
        self.image = Image()
        self._coordination = coordination
        self._partitions = partitions
        self._settings = settings
        self._brokers = brokers
        self._new_id = new_id
        self._turn = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()

    async def load(self) -> None:
        """Learn the topics from coordination, finish deletions, open every partition."""
        listing = await self._coordination.get_prefix(TOPICS)
        created = []
        for key, entry in listing.entries.items():
            if _is_deleting(entry.value):
                change = decode_topic(entry.value)
                await self._partitions.store.remove(change.name, str(change.topic_id))
                await self._coordination.compare_and_put(key, None, entry.revision)
            else:
                created.append(decode_topic(entry.value))
        self.image = image_of(created, self._settings.topic_defaults)
        await self._partitions.open_all(self.image.by_name.values())

    async def settle(self) -> None:
        """Wait for changes that are under way."""
        await asyncio.gather(*self._changes, return_exceptions=True)

    async def create(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        overrides: Mapping[str, str],
        assignment: Mapping[int, Sequence[int]] | None,
        *,
        validate_only: bool,
        internal: bool = False,
    ) -> Topic:
        """A new topic; every check of it comes before the first write."""
        check_topic_name(name)
        if name in INTERNAL and not internal:
            raise InvalidTopic(f"{name} is kept by the broker itself")
        infos = self._place(partitions, replication_factor, assignment)
        change = TopicCreated(name, self._new_id(), infos, dict(overrides))
        if validate_only:
            return self.image.apply(change).by_name[name]
        return await self._run(self._create(change))

    async def delete(self, name: str) -> Topic:
        """The topic that is gone, with all its records."""
        if name in INTERNAL:
            raise InvalidTopic(f"{name} is kept by the broker itself")
        if not self._settings.delete_topic_enable:
            raise InvalidRequest("topics are not deleted here: delete.topic.enable is false")
        return await self._run(self._delete(name))

    async def add_partitions(
        self, name: str, total: int, assignment: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> Topic:
        """The topic with `total` partitions."""
        return await self._run(self._add_partitions(name, total, assignment, validate_only=validate_only))

    async def alter(self, name: str, overrides: Mapping[str, str], *, validate_only: bool) -> Topic:
        """The topic with another whole set of overrides."""
        return await self._run(self._alter(name, overrides, validate_only=validate_only))

    def _place(
        self, partitions: int, replication_factor: int, assignment: Mapping[int, Sequence[int]] | None
    ) -> tuple[PartitionInfo, ...]:
        if assignment:
            if partitions != UNSET or replication_factor != UNSET:
                raise InvalidRequest("an assignment says itself how many partitions and replicas there are")
            return place_as_told(self._brokers(), assignment)
        total = self._settings.num_partitions if partitions == UNSET else partitions
        copies = self._settings.default_replication_factor if replication_factor == UNSET else replication_factor
        if total < 1:
            raise InvalidPartitions(f"{total} is not a number of partitions")
        if copies < 1:
            raise InvalidReplicationFactor(f"{copies} is not a replication factor")
        return place(self._brokers(), 0, total, copies)

    async def _create(self, change: TopicCreated) -> Topic:
        image = self.image.apply(change)
        topic = image.by_name[change.name]
        await self._partitions.store.make_room(topic.name)
        await self._put(topic, create=True)
        try:
            await self._partitions.open_new(topic.name, topic.settings, topic.partitions)
        except KafkaStorageError:
            await self._put(topic, deleting=True)
            await self._erase(topic)
            raise
        return self._show(change)

    async def _delete(self, name: str) -> Topic:
        topic = self._known(name)
        await self._put(topic, deleting=True)
        self.image = self.image.apply(TopicDeleted(name))
        await self._erase(topic)
        log.info("topic deleted", topic=name)
        return topic

    async def _erase(self, topic: Topic) -> None:
        """Leave nothing of a topic that is marked; a crash before the last step is finished at the next start."""
        await self._partitions.close_some(topic.name, topic.partitions)
        try:
            await self._partitions.store.remove(topic.name, str(topic.topic_id))
        except OSError as error:
            raise KafkaStorageError(f"{topic.name} cannot be removed before a restart: {error}") from error
        entry = await self._coordination.get(TOPICS + topic.name)
        await self._coordination.compare_and_put(TOPICS + topic.name, None, entry.revision if entry else 0)

    async def _add_partitions(
        self, name: str, total: int, assignment: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> Topic:
        topic = self._known(name)
        present = len(topic.partitions)
        if total <= present:
            raise InvalidPartitions(f"{name} has {present} partitions; they can only become more, not {total}")
        if assignment is not None:
            if len(assignment) != total - present:
                raise InvalidPartitions(f"{len(assignment)} assignments for {total - present} new partitions")
            told = place_as_told(self._brokers(), dict(enumerate(assignment)))
            added = tuple(replace(info, index=info.index + present) for info in told)
        else:
            added = place(self._brokers(), present, total, len(topic.partitions[0].replicas))
        change = PartitionsAdded(name, added)
        grown = self.image.apply(change).by_name[name]
        if validate_only:
            return grown
        await self._put(grown)
        try:
            await self._partitions.open_new(name, grown.settings, added)
        except KafkaStorageError:
            await self._partitions.close_some(name, added)
            await self._put(topic)
            raise
        return self._show(change)

    async def _alter(self, name: str, overrides: Mapping[str, str], *, validate_only: bool) -> Topic:
        change = TopicAltered(name, dict(overrides))
        altered = self.image.apply(change).by_name[name]
        if altered.settings.tidemill_storage != self.image.by_name[name].settings.tidemill_storage:
            raise InvalidConfig(f"tidemill.storage of {name} was chosen when it was created")
        if validate_only:
            return altered
        await self._put(altered)
        for info in altered.partitions:
            partition = self._partitions.find(name, info.index)
            if partition is not None:
                partition.apply_settings(altered.settings)
        return self._show(change)

    async def _put(self, topic: Topic, *, create: bool = False, deleting: bool = False) -> None:
        key = TOPICS + topic.name
        entry = None if create else await self._coordination.get(key)
        document = _mark_deleting(encode_topic(topic)) if deleting else encode_topic(topic)
        if await self._coordination.compare_and_put(key, document, entry.revision if entry else 0) is None:
            raise KafkaStorageError(f"topic {topic.name} was changed by somebody else")

    def _known(self, name: str) -> Topic:
        topic = self.image.by_name.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name[:60]!r}")
        return topic

    def _show(self, change: TopicCreated | PartitionsAdded | TopicAltered) -> Topic:
        self.image = self.image.apply(change)
        return self.image.by_name[change.name]

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(self._in_turn(work))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _in_turn(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._turn:
            return await work


def _mark_deleting(document: bytes) -> bytes:
    return json.dumps({**json.loads(document), "deleting": True}, separators=(",", ":")).encode()


def _is_deleting(document: bytes) -> bool:
    try:
        return bool(json.loads(document).get("deleting"))
    except (ValueError, AttributeError) as error:
        raise KafkaStorageError(f"a topic in coordination cannot be read: {error}") from None
