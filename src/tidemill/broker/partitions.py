"""The partitions that this broker carries: opened at start, found by name, closed at stop.

In a cluster `follow` also gives every partition its role (replication/roles.py): leader, or follower that copies from
the leader. On a single broker all partitions lead from the start. A partition on shared servers is open only at its
leader. It is reopened for every leader epoch, because another broker may have written to it in between.

The store opens partitions and removes the data of deleted topics; the composition root chooses the store. A partition
that cannot be opened does not block the others. Its error is stored, and every use of it raises that error. When the
cause can pass (a full disk or an unreachable store), `reopen_failed` tries again. A topic whose directory could not be
claimed is not opened at all, because its records would go to a directory of unknown ownership.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import structlog

from tidemill.cluster.core.image import Image, PartitionInfo, Topic
from tidemill.model.errors import KafkaStorageError, TidemillError, UnknownTopicOrPartition
from tidemill.model.topic_settings import IN_TABLES, TopicSettings
from tidemill.model.topics import UnknownTopic
from tidemill.replication.roles import ReplicaRoles
from tidemill.streams.interface import StoreAway, lacks_room
from tidemill.streams.partition import Partition

OPENING_MAX = 32
"""Partitions that are opened or closed at the same time."""

log = structlog.get_logger("tidemill.broker")


class StorageUsage(NamedTuple):
    """The storage location of records and the size of its disk; -1 when unknown."""

    place: str
    total_bytes: int
    usable_bytes: int


class PartitionStore(Protocol):
    """The storage of partitions."""

    @property
    def outages(self) -> int:
        """How often the storage of partitions became unreachable or reachable again."""

    @property
    def full(self) -> bool:
        """Whether records are rejected because the disk is full."""

    @property
    def missing(self) -> Sequence[str]:
        """Data that was stored at the last stop and is missing now, one line each."""

    def is_in_tables(self, topic: str) -> bool:
        """Whether SQL can read the topic's records where they are stored."""

    def is_shared(self, storage: str) -> bool:
        """Whether all brokers share the records of a topic with this `tidemill.storage`."""

    async def servers(self) -> int:
        """Over how many servers the partitions of one topic can be spread."""

    async def usage(self) -> StorageUsage:
        """The storage location, and its total and free space."""

    async def open(
        self, topic: str, index: int, settings: TopicSettings, leader_epoch: int, topic_id: str
    ) -> Partition:
        """The partition as it was left, or a new one."""

    async def claim(self, topic: str, topic_id: str, *, new: bool) -> None:
        """Claim the directory of a topic before its first partition is opened; data of other topics is moved away.

        `new`: the topic was just created, so data without an id under its name is not its own.
        """

    async def free_reserve(self) -> bool:
        """Free the disk space that is reserved for the broker itself; whether there was any."""

    async def look_for_folder(self, topic: str, index: int, topic_id: str, *, copied: bool) -> bool:
        """Before a partition is opened: whether its data is missing. With other replicas (`copied`) it starts empty."""

    async def drop_lost(self, partition: Partition, topic_id: str) -> bool:
        """Whether a replica lost records, now or before a crash; it keeps the records before the first lost one."""

    async def losses_given_up(self) -> None:
        """Clear the record of losses, because replicas that lost records are no longer in sync."""

    async def forget(self, topic_id: str, index: int) -> None:
        """Record that a partition is about to be deleted, so that its absence is not a loss after a crash."""

    async def unknown(self, known: Collection[str]) -> list[UnknownTopic]:
        """Topics that have records here and are not among the known names."""

    async def remove(self, topic: str, topic_id: str) -> None:
        """Remove the data of a deleted topic, whose partitions are closed. Safe to repeat, also after a crash."""

    async def close(self, *, clean: bool) -> None:
        """Close the store after all partitions; `clean`: all closed without error, so the logs can be trusted."""


class _Instance(NamedTuple):
    """Identifies the instance of an open partition: its topic and, where it matters, its leader epoch."""

    topic_id: UUID
    epoch: int | None
    """The leader epoch for which it was opened, if another epoch requires reopening; otherwise None."""


class _Claim(NamedTuple):
    """The outcome of claiming a topic's directory."""

    topic_id: UUID
    new: bool
    error: BaseException | None


class Partitions:
    """Open partitions by topic and index."""

    def __init__(self, store: PartitionStore) -> None:
        self.store = store
        self.replicas: ReplicaRoles | None = None
        self._turn = asyncio.Lock()  # `reopen_failed` and `follow` must not open the same partition
        self._claims: dict[str, _Claim] = {}
        self._instances: dict[tuple[str, int], _Instance] = {}
        self._roles: dict[tuple[str, int], PartitionInfo] = {}
        self._open: dict[tuple[str, int], Partition] = {}
        self._broken: dict[tuple[str, int], BaseException] = {}
        self._reopened = 0
        self._node_id = -1
        self.unknown: list[UnknownTopic] = []
        self.lost: set[tuple[str, int]] = set()
        """Replicas that lost records with their files. They are not in sync, whatever coordination says."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._open.values()))

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition if it is open here."""
        return self._open.get((topic, index))

    def get(self, topic: str, index: int) -> Partition:
        """The partition; raises the error that prevents its use."""
        found = self._open.get((topic, index))
        if found is not None:
            return found
        broken = self._broken.get((topic, index))
        if broken is not None:
            raise KafkaStorageError(f"{topic}-{index} could not be opened: {broken}") from broken
        raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")

    @property
    def outages(self) -> int:
        """How often partitions became unreachable or reachable again."""
        return self.store.outages + self._reopened

    def is_away(self, topic: str, index: int) -> bool:
        """Whether the store of the partition is unreachable now."""
        found = self._open.get((topic, index))
        return found.away if found is not None else isinstance(self._broken.get((topic, index)), StoreAway)

    @property
    def lacks_room(self) -> bool:
        """Whether a partition could not be opened because the disk was full."""
        return any(map(lacks_room, self._broken.values()))

    async def reopen_failed(self, find: Callable[[str], Topic | None]) -> int:
        """Retry partitions that failed because of an unreachable store or a full disk; how many were opened."""
        before = self._reopened
        for key in [key for key, error in self._broken.items() if _passes(error)]:
            async with self._turn:
                topic = find(key[0])
                if topic is None or key not in self._broken:
                    continue
                if self._claim_error(key[0]) is not None:
                    await self._claim(topic, new=self._claims[key[0]].new)
                await self._open_or_remember(topic, topic.partitions[key[1]])
                if key in self._open:
                    del self._broken[key]
                    self._reopened += 1
                    log.info("partition_reopened", partition=f"{key[0]}-{key[1]}")
        return self._reopened - before

    async def look_for_unknown(self, image: Image) -> None:
        """Find and log topics that have records here and that coordination does not know."""
        self.unknown = await self.store.unknown(image.by_name)
        for found in self.unknown:
            log.warning("unknown_topic_directory", topic=found.name, partitions=found.partitions)

    def trouble(self, topic: str, index: int) -> BaseException | None:
        """Why a partition cannot be used, or None."""
        found = self._open.get((topic, index))
        return found.failed if found is not None else self._broken.get((topic, index))

    def broken(self) -> dict[tuple[str, int], BaseException]:
        """Partitions that cannot be used, with the reason."""
        failed = {key: each.failed for key, each in self._open.items() if each.failed is not None}
        return {**self._broken, **failed}

    def is_shared(self, topic: Topic) -> bool:
        """Whether all brokers share the records of this topic."""
        return topic.settings.tidemill_storage == IN_TABLES and self.store.is_shared(IN_TABLES)

    async def follow(
        self, image: Image, node_id: int, names: Collection[str] | None, *, new: bool = True, joined: bool = True
    ) -> None:
        """Open this broker's partitions of these topics (None: all) in their roles; close those it no longer carries.

        `new`: topics that were not known before were just created. Before the broker has `joined` the cluster, it leads
        no partition, whatever it led when it stopped.
        """
        async with self._turn:
            await self._follow(image, node_id, names, new=new, joined=joined)

    async def _follow(
        self, image: Image, node_id: int, names: Collection[str] | None, *, new: bool, joined: bool
    ) -> None:
        self._node_id = node_id
        wanted = {
            (topic.name, info.index): (topic, info)
            for topic in _chosen(image, names)
            for info in topic.partitions
            if (joined and node_id == info.leader if self.is_shared(topic) else node_id in info.replicas)
        }
        known = {**self._open, **self._broken}
        going = [
            key
            for key in known
            if (names is None or key[0] in names) and self._instances.get(key) != self._instance(wanted, key)
        ]
        await self._release(going, image)
        await self._claim_all(image, node_id, names, new=new)
        await _bounded(self._open_or_remember(*wanted[key]) for key in wanted if key not in self._instances)
        if self.replicas is not None:
            changed = (key for key in wanted if key in self._open and self._roles.get(key) != wanted[key][1])
            await _bounded(self._assume(*wanted[key], self._open[key]) for key in changed)

    def step_down(self) -> None:
        """Stop leading partitions that other brokers carry or share: this broker is no longer a member of the
        cluster.
        """
        for key, partition in self._open.items():
            partition.leader.step_down(replaceable=self._instances[key].epoch is not None and self.replicas is not None)

    async def _release(self, keys: Iterable[tuple[str, int]], image: Image) -> None:
        """Close partitions, and delete the records of those that moved to other brokers.

        The records of a deleted topic stay for `remove`.
        """
        work = []
        for key in keys:
            topic_id, epoch = self._instances.pop(key)
            self._roles.pop(key, None)
            self._broken.pop(key, None)
            if self.replicas is not None:
                self.replicas.forget(topic_id, key[1])
            partition = self._open.pop(key, None)
            if partition is not None:
                moved = topic_id in image.by_id and key[1] < len(image.by_id[topic_id].partitions)
                work.append(self._delete(topic_id, partition) if moved and epoch is None else partition.close())
        _report(await _bounded(work, keep_errors=True))

    async def _delete(self, topic_id: UUID, partition: Partition) -> None:
        await self.store.forget(str(topic_id), partition.index)
        await partition.delete()

    async def _claim_all(self, image: Image, node_id: int, names: Collection[str] | None, *, new: bool) -> None:
        """Claim the directory of each topic before its first partition is opened here."""
        for gone in [name for name in self._claims if name not in image.by_name]:
            del self._claims[gone]
        for topic in _chosen(image, names):
            if any(node_id in info.replicas for info in topic.partitions):
                await self._claim(topic, new=new)

    async def _claim(self, topic: Topic, *, new: bool) -> None:
        before = self._claims.get(topic.name)
        if before is not None and before.topic_id == topic.topic_id:
            if before.error is None:
                return
            new = before.new
        refused: BaseException | None = None
        try:
            await self.store.claim(topic.name, str(topic.topic_id), new=new)
        except (TidemillError, OSError) as error:
            refused = error
        self._claims[topic.name] = _Claim(topic.topic_id, new, refused)

    def _claim_error(self, topic: str) -> BaseException | None:
        claim = self._claims.get(topic)
        return claim.error if claim is not None else None

    def _instance(
        self, wanted: Mapping[tuple[str, int], tuple[Topic, PartitionInfo]], key: tuple[str, int]
    ) -> _Instance | None:
        return self._instance_of(*wanted[key]) if key in wanted else None

    def _instance_of(self, topic: Topic, info: PartitionInfo) -> _Instance:
        return _Instance(topic.topic_id, info.leader_epoch if self.is_shared(topic) else None)

    async def _assume(self, topic: Topic, info: PartitionInfo, partition: Partition) -> None:
        if self.replicas is not None:
            await self.replicas.assume(topic, info, partition)
            self._roles[topic.name, info.index] = info

    async def close(self) -> None:
        """Close everything; a partition that cannot be closed does not keep the others open."""
        keys = list(self._open)
        closing = [self._open.pop(key) for key in keys]
        results = await _bounded((each.close() for each in closing), keep_errors=True)
        failed = any(each.failed is not None for each in closing)
        await self.store.close(clean=not _report(results) and not self._broken and not failed)

    async def _open_or_remember(self, topic: Topic, info: PartitionInfo) -> None:
        key = topic.name, info.index
        self._instances[key] = self._instance_of(topic, info)
        refused = self._claim_error(topic.name)
        if refused is not None:
            self._remember(key, refused)
            return
        try:
            topic_id = str(topic.topic_id)
            copied = self.replicas is not None and len(info.replicas) > 1
            gone = await self.store.look_for_folder(topic.name, info.index, topic_id, copied=copied)
            partition = await self.store.open(topic.name, info.index, topic.settings, info.leader_epoch, topic_id)
            # Without another in-sync replica, serve the records that are left, because no other broker has more.
            others = any(node != self._node_id for node in info.isr)
            if copied and (gone or others) and await self.store.drop_lost(partition, topic_id):
                self.lost.add(key)
            await self._assume(topic, info, partition)
            self._open[key] = partition
        except (TidemillError, OSError) as error:
            self._remember(key, error)

    def _remember(self, key: tuple[str, int], error: BaseException) -> None:
        if str(self._broken.get(key)) != str(error):  # log the same error once, however often it is retried
            log.error("partition_open_failed", partition=f"{key[0]}-{key[1]}", error=str(error))
        self._broken[key] = error


def _passes(error: BaseException) -> bool:
    """Whether the error that prevented opening a partition may pass."""
    return isinstance(error, StoreAway) or lacks_room(error)


def _chosen(image: Image, names: Collection[str] | None) -> list[Topic]:
    if names is None:
        return list(image.by_name.values())
    return [image.by_name[name] for name in names if name in image.by_name]


def _report(results: Iterable[object]) -> int:
    """Log the partitions that could not be closed; how many."""
    failures = [error for error in results if isinstance(error, BaseException)]
    for error in failures:
        log.error("partition_close_failed", error=str(error))
    return len(failures)


async def _bounded(work: Iterable[Coroutine[Any, Any, object]], *, keep_errors: bool = False) -> list[object]:
    """Run coroutines, at most OPENING_MAX at a time; the first error is raised after all have ended."""
    limit = asyncio.Semaphore(OPENING_MAX)
    coroutines = list(work)

    async def run(each: Coroutine[Any, Any, object]) -> object:
        async with limit:
            return await each

    try:
        results = await asyncio.gather(*(run(each) for each in coroutines), return_exceptions=True)
    finally:
        for each in coroutines:
            each.close()  # a caller that is cancelled leaves some that never started
    for result in results:
        if isinstance(result, BaseException) and not keep_errors:
            raise result
    return list(results)
