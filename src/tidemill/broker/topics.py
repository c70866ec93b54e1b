"""Topic changes: create, add partitions, alter settings; and following the cluster image.

The path of a change: check it against the image; write it to coordination, where it is durable and every broker sees
it; wait until this broker has seen it, has opened or closed its partitions, and shows the next image to its clients;
answer the request. Any broker can process the request. After a crash behind the write, the brokers that see the write
finish the change. Deleting a topic is described in deletions.py.

Changes of one broker run one at a time, each in its own task, so a client that disconnects does not leave half a topic.
When two brokers change one topic at the same time, one of the writes is rejected, and that broker decides again.
"""

import asyncio
import zlib
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

import structlog

from tidemill.broker.deletions import Deletions
from tidemill.broker.partitions import Partitions
from tidemill.broker.topic_commands import TopicCommand, TopicCommands
from tidemill.cluster.core.image import (
    TOPICS,
    Image,
    PartitionInfo,
    PartitionsAdded,
    Topic,
    TopicAltered,
    TopicCreated,
    encode_topic,
)
from tidemill.cluster.core.placement import place, place_assigned
from tidemill.cluster.core.registration import INACTIVE
from tidemill.cluster.core.view import Touched
from tidemill.cluster.interface import Coordination
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    InvalidUpdateVersion,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from tidemill.model.topic_settings import BROKERS_CHOICE, IN_TABLES, SPREAD, setting
from tidemill.model.topics import INTERNAL, check_topic_name

UNSET = -1
"""The value that clients send for "the broker's default"."""
STORAGE = "tidemill.storage"
CHOSEN_AT_CREATION = (STORAGE, SPREAD)
"""Settings that determine where records are stored. A later change would look for them in the wrong place."""
TRIES_MAX = 20
"""How often a change is tried while other brokers change the same topic."""

T = TypeVar("T")

log = structlog.get_logger("tidemill.broker")


class Topics:
    """The image that this broker shows, and the changes to it."""

    def __init__(
        self,
        coordination: Coordination,
        metadata: ClusterMetadata,
        partitions: Partitions,
        deletions: Deletions,
        *,
        settings: BrokerSettings,
        node_id: int,
        new_id: Callable[[], UUID],
    ) -> None:
        self.image = Image()
        self._new_id = new_id
        self._coordination = coordination
        self._metadata = metadata
        self._partitions = partitions
        self._deletions = deletions
        self._settings = settings
        self._node_id = node_id
        self._turn = asyncio.Lock()
        self._changes: set[asyncio.Task[Any]] = set()
        self.commands = TopicCommands()

    async def load(self) -> None:
        """Load the topics from coordination, finish deletions, open every partition."""
        await self._metadata.load()
        await self._deletions.remove_here()
        await self._follow(None, new=False, joined=not self._coordination.shared)
        await self._partitions.look_for_unknown(self.image)

    async def follow(self, touched: Touched) -> None:
        """Apply the new view, and show it."""
        await self._follow(touched.topics, new=True)

    async def _follow(self, names: Collection[str] | None, *, new: bool, joined: bool = True) -> None:
        image = self._metadata.image
        await self._partitions.follow(image, self._node_id, names, new=new, joined=joined)
        for name in names or ():
            self._apply_settings(image.by_name.get(name))
        self.image = image

    def _apply_settings(self, topic: Topic | None) -> None:
        """Apply changed settings to the partitions; a topic that was not altered keeps its settings object."""
        before = self.image.by_name.get(topic.name) if topic is not None else None
        if topic is None or before is None or before.settings is topic.settings:
            return
        for info in topic.partitions:
            partition = self._partitions.find(topic.name, info.index)
            if partition is not None and partition.settings != topic.settings:
                partition.apply_settings(topic.settings)

    async def settle(self) -> None:
        """Wait for running changes."""
        await asyncio.gather(*self._changes, return_exceptions=True)

    async def create(
        self,
        name: str,
        *,
        partitions: int = UNSET,
        replication_factor: int = UNSET,
        overrides: Mapping[str, str] | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        topic_id: UUID | None = None,
        validate_only: bool = False,
        internal: bool = False,
    ) -> Topic:
        """Create a topic that can be written to when this returns; every check comes before the first write."""
        with self.commands.counted(TopicCommand.CREATE, is_counted=not (validate_only or internal)):
            check_topic_name(name)
            if name in INTERNAL and not internal:
                raise InvalidTopic(f"{name} is an internal topic of the broker; choose another name")
            change = await self._planned(
                name, partitions, replication_factor, overrides or {}, assignment, topic_id, internal=internal
            )
            if not internal:
                self._refuse_different(self.image.apply(change).by_name[name])
            if validate_only:
                self._refuse_blocked(name)
                return self.image.apply(change).by_name[name]
            topic = await self._run(self._create(change))
        if not internal:
            log.info("topic_created", topic=name, partitions=len(topic.partitions))
        return topic

    async def _planned(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        overrides: Mapping[str, str],
        assignment: Mapping[int, Sequence[int]] | None,
        topic_id: UUID | None,
        *,
        internal: bool,
    ) -> TopicCreated:
        """The creation of a topic, with the places of its partitions."""
        shared = self._partitions.store.is_shared(overrides.get(STORAGE, BROKERS_CHOICE))
        infos = self._place(name, partitions, 1 if shared and internal else replication_factor, assignment)
        if shared:
            _refuse_copies(name, infos)
            overrides = {**overrides, STORAGE: IN_TABLES}  # other brokers must see the storage of the topic
            overrides = await self._spread(overrides, internal=internal)
        elif _spread_of(overrides):
            raise InvalidConfig(f"{SPREAD} applies to topics on ClickHouse servers; {name} is not stored there")
        return TopicCreated(name, topic_id or self._new_id(), infos, dict(overrides))

    async def _spread(self, overrides: Mapping[str, str], *, internal: bool) -> Mapping[str, str]:
        """The overrides with the number of servers that an internal topic is spread over."""
        servers = await self._partitions.store.servers()
        if internal:
            # One unreachable server must not block every group and every transaction.
            return {**overrides, SPREAD: str(servers)}
        if _spread_of(overrides) > servers:
            raise InvalidConfig(
                f"{SPREAD}={overrides[SPREAD]} is more than the {servers} ClickHouse servers of --streams"
            )
        return overrides

    async def delete(self, name: str) -> None:
        """Delete a topic with all its records; returns when the deletion is complete."""
        with self.commands.counted(TopicCommand.DELETE):
            if name in INTERNAL:
                raise InvalidTopic(f"{name} is an internal topic of the broker; choose another name")
            if not self._settings.delete_topic_enable:
                raise InvalidRequest("topics cannot be deleted: delete.topic.enable is false")
            await self._run(self._delete(name))

    async def add_partitions(
        self,
        name: str,
        total: int,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Add partitions until there are `total`."""
        with self.commands.counted(TopicCommand.ADD_PARTITIONS, is_counted=not validate_only):
            return await self._run(self._add_partitions(name, total, assignment, validate_only=validate_only))

    async def alter(self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> Topic:
        """Replace all overrides of a topic."""
        with self.commands.counted(TopicCommand.ALTER, is_counted=not validate_only):
            return await self._run(self._alter(name, overrides, validate_only=validate_only))

    def is_shared(self, topic: Topic) -> bool:
        """Whether all brokers share the records of a topic."""
        return self._partitions.is_shared(topic)

    def carriers(self) -> dict[int, str | None]:
        """The brokers that partitions may be placed on, with their racks."""
        brokers = self._metadata.image.brokers.values()
        return {each.node_id: each.rack for each in brokers if each.carries and each.state != INACTIVE}

    def _place(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        assignment: Mapping[int, Sequence[int]] | None,
    ) -> tuple[PartitionInfo, ...]:
        racks = self.carriers()
        if assignment:
            if partitions != UNSET or replication_factor != UNSET:
                raise InvalidRequest("an assignment defines the partitions and replicas; do not give their numbers too")
            return place_assigned(list(racks), assignment)
        total = self._settings.num_partitions if partitions == UNSET else partitions
        copies = self._settings.default_replication_factor if replication_factor == UNSET else replication_factor
        if total < 1:
            raise InvalidPartitions(f"{total} is not a valid number of partitions; give at least 1")
        if copies < 1:
            raise InvalidReplicationFactor(f"{copies} is not a valid replication factor; give at least 1")
        return place(list(racks), 0, total, copies, racks=racks, start=_start_of(name))

    async def _create(self, change: TopicCreated) -> Topic:
        name = change.name
        self._refuse_blocked(name)
        topic = self.image.apply(change).by_name[name]
        written = await self._coordination.compare_and_put(TOPICS + name, encode_topic(topic), 0)
        if written is None:
            raise TopicAlreadyExists(f"topic {name} exists already")
        await self._metadata.caught_up(written)
        refused = self._broken(name, range(len(topic.partitions)))
        if refused is not None:
            await self._deletions.delete(topic)
            raise KafkaStorageError(f"{name} cannot be stored: {_reason(refused)}") from refused
        return self._known(name)

    async def _delete(self, name: str) -> None:
        await self._deletions.delete(self._known(name))
        log.info("topic_deleted", topic=name)

    async def _add_partitions(
        self, name: str, total: int, assignment: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> Topic:
        topic = self._known(name)
        present = len(topic.partitions)
        if total <= present:
            raise InvalidPartitions(f"{name} has {present} partitions; give a larger number than that, not {total}")
        racks = self.carriers()
        if assignment is not None:
            if len(assignment) != total - present:
                raise InvalidReplicaAssignment(f"{len(assignment)} assignments for {total - present} new partitions")
            placed = place_assigned(list(racks), dict(enumerate(assignment)))
            if self.is_shared(topic):
                _refuse_copies(name, placed)
            added = tuple(replace(info, index=info.index + present) for info in placed)
        else:
            copies = len(topic.partitions[0].replicas) - len(topic.partitions[0].adding)
            added = place(list(racks), present, total, copies, racks=racks, start=_start_of(name))
        grown = self.image.apply(PartitionsAdded(name, added)).by_name[name]
        if validate_only:
            return grown
        await self._put(grown)
        refused = self._broken(name, range(present, total))
        if refused is not None:
            await self._put(topic)
            raise KafkaStorageError(f"{name} cannot be stored: {_reason(refused)}") from refused
        return self._known(name)

    async def _alter(self, name: str, overrides: Mapping[str, str], *, validate_only: bool) -> Topic:
        for _ in range(TRIES_MAX):
            known = self._known(name)
            chosen = {key: value for key, value in known.overrides.items() if key in CHOSEN_AT_CREATION}
            altered = self.image.apply(TopicAltered(name, {**chosen, **overrides})).by_name[name]
            for each in map(setting, CHOSEN_AT_CREATION):
                if getattr(altered.settings, each.field) != getattr(known.settings, each.field):
                    raise InvalidConfig(f"{each.name} of {name} was chosen when it was created and cannot change")
            self._refuse_different(altered)
            if validate_only:
                return altered
            try:
                await self._put(altered)
            except InvalidUpdateVersion:
                continue
            return self._known(name)
        raise InvalidUpdateVersion(f"topic {name} was changed by other brokers {TRIES_MAX} times in a row; try again")

    async def _put(self, topic: Topic) -> None:
        """Write the topic over the revision that this broker has seen, and wait until it sees the write."""
        key = TOPICS + topic.name
        revision = self._metadata.view.revision_of(key)
        written = await self._coordination.compare_and_put(key, encode_topic(topic), revision)
        if written is None:
            entry = await self._coordination.get(key)
            await self._metadata.caught_up(entry.revision if entry else 0)
            raise InvalidUpdateVersion(f"topic {topic.name} was changed by another broker at the same time; try again")
        await self._metadata.caught_up(written)

    def _timelines_differ(self) -> bool:
        """Whether some brokers share their timelines and others do not."""
        brokers = self._metadata.image.brokers.values()
        return len({one.shares_timelines for one in brokers if one.carries and one.kafka is not None}) > 1

    def _refuse_different(self, topic: Topic) -> None:
        """Waiting records must be in a store that every possible leader of the topic uses."""
        if topic.settings.tidemill_schedule_enable and self._timelines_differ():
            raise InvalidConfig(
                f"tidemill.schedule.enable of {topic.name}: some brokers share timelines and others do not;"
                " give all of them the same --timelines"
            )

    def _refuse_blocked(self, name: str) -> None:
        if name in self._metadata.view.tombstones:
            raise TopicAlreadyExists(f"topic {name} is being deleted; create it when the deletion has finished")

    def _broken(self, name: str, indexes: Collection[int]) -> BaseException | None:
        """Why one of these partitions cannot be stored here, or None."""
        troubles = (self._partitions.trouble(name, index) for index in indexes)
        return next((error for error in troubles if error is not None), None)

    def _known(self, name: str) -> Topic:
        topic = self.image.by_name.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name[:60]!r}")
        return topic

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(self._in_turn(work))
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    async def _in_turn(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._turn:
            return await work


def _refuse_copies(name: str, infos: Collection[PartitionInfo]) -> None:
    if any(len(info.replicas) > 1 for info in infos):
        raise InvalidReplicationFactor(f"{name} is stored on servers with their own copies; use replication factor 1")


def _spread_of(overrides: Mapping[str, str]) -> int:
    spread = setting(SPREAD)
    found: int = spread.read(overrides.get(SPREAD, spread.default))
    return found


def _start_of(name: str) -> int:
    """The position of the first broker, so that topics start at different brokers."""
    return zlib.crc32(name.encode())


def _reason(error: BaseException) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
