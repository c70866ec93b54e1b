"""The partitions that this broker carries: opened at start, found by name, closed at the end.

In a cluster `follow` also gives every partition its role (replicas.py): it leads, or copies from its leader. A broker
that is alone has no roles to give: its partitions lead from the start. A partition whose records all brokers see (on
servers) is open where it is led and nowhere else, and opened anew for every leader epoch: another broker may have
written it in between.

The store says how a partition is opened and what is left of a topic when it goes; which store that is, the
composition root decides. One partition that cannot be opened does not keep the others from their readers: it is
remembered with its error, and every use of it gets that error. Where the reason passes (no room, or a store out of
reach) `mend` tries again. A topic whose place could not be claimed is not opened at all: its records would lie in a
folder that nobody knows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

import structlog

from tidemill.cluster.core.image import Image, PartitionInfo, Topic
from tidemill.model.errors import KafkaStorageError, TidemillError, UnknownTopicOrPartition
from tidemill.model.topic_settings import IN_TABLES, TopicSettings
from tidemill.replication.roles import ReplicaRoles
from tidemill.streams.interface import StoreAway, lacks_room
from tidemill.streams.partition import Partition

OPENING_MAX = 32
"""Partitions that are opened or closed at the same time."""

log = structlog.get_logger("tidemill.broker")


class StorageUsage(NamedTuple):
    """A place for records and what its disk holds; -1 where nobody can say."""

    place: str
    total_bytes: int
    usable_bytes: int


class UnknownTopic(NamedTuple):
    """A topic that has records here and that coordination does not know."""

    name: str
    topic_id: str
    """Empty when the folder does not say."""
    partitions: int


class PartitionStore(Protocol):
    """Where partitions are kept."""

    @property
    def outages(self) -> int:
        """How often a place of partitions went out of reach or came back."""

    @property
    def full(self) -> bool:
        """Whether records are refused because there is no room for them."""

    @property
    def missing(self) -> Sequence[str]:
        """What was stored at the last stop and is not there now, one line each."""

    def is_in_tables(self, topic: str) -> bool:
        """Whether SQL finds the topic's records where they are stored."""

    def is_shared(self, storage: str) -> bool:
        """Whether all brokers see the records of a topic that is made with this `tidemill.storage`."""

    async def servers(self) -> int:
        """Over how many servers the partitions of one topic can be spread."""

    async def room(self) -> StorageUsage:
        """The place, and how much fits into it."""

    async def open(
        self, topic: str, index: int, settings: TopicSettings, leader_epoch: int, topic_id: str
    ) -> Partition:
        """The partition as it was left, or a new one."""

    async def claim(self, topic: str, topic_id: str, *, new: bool) -> None:
        """Before the first partition of a topic is opened: nothing that is not its own may be found under its name.

        `new`: the topic was created just now, so that whatever lies there without an id is not its own.
        """

    async def free_reserve(self) -> bool:
        """Free the room that is kept for the broker itself; whether there was some."""

    async def look_for_folder(self, topic: str, index: int, topic_id: str, *, copied: bool) -> bool:
        """Before a partition is opened: whether what it had is gone. With other copies (`copied`) it begins empty."""

    async def drop_lost(self, partition: Partition, topic_id: str) -> bool:
        """Whether a replica lost records, now or before a crash; it keeps only what comes before the first of them."""

    async def losses_given_up(self) -> None:
        """Replicas that lost records are not in sync any more; nothing need be remembered of it."""

    async def forget(self, topic_id: str, index: int) -> None:
        """A partition is about to be deleted here: its absence is no loss, whatever crashes."""

    async def unknown(self, known: Collection[str]) -> list[UnknownTopic]:
        """Topics that have records here and are not among the known names."""

    async def remove(self, topic: str, topic_id: str) -> None:
        """What the closed partitions of a deleted topic kept; survives a crash half way, may be called again."""

    async def close(self, *, clean: bool) -> None:
        """Every partition is closed; `clean` when all went well, so that the next start may trust the logs."""


class _Life(NamedTuple):
    """What an open partition is: of which topic, and for how long."""

    topic_id: UUID
    epoch: int | None
    """The leader epoch for which it was opened, where another one needs another look."""


class _Claim(NamedTuple):
    """What became of the claim of a topic's place."""

    topic_id: UUID
    new: bool
    error: BaseException | None


class Partitions:
    """Open partitions by topic and index."""

    def __init__(self, store: PartitionStore) -> None:
        self.store = store
        self.replicas: ReplicaRoles | None = None
        self._turn = asyncio.Lock()  # `mend` and `follow` do not open the same partition
        self._claims: dict[str, _Claim] = {}
        self._lives: dict[tuple[str, int], _Life] = {}
        self._roles: dict[tuple[str, int], PartitionInfo] = {}
        self._open: dict[tuple[str, int], Partition] = {}
        self._broken: dict[tuple[str, int], BaseException] = {}
        self._mended = 0
        self._node_id = -1
        self.unknown: list[UnknownTopic] = []
        self.lost: set[tuple[str, int]] = set()
        """Replicas that lost records with their files: they are not in sync, whatever coordination says."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._open.values()))

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition if it is open here."""
        return self._open.get((topic, index))

    def get(self, topic: str, index: int) -> Partition:
        """The partition; the error that keeps it from being used otherwise."""
        found = self._open.get((topic, index))
        if found is not None:
            return found
        broken = self._broken.get((topic, index))
        if broken is not None:
            raise KafkaStorageError(f"{topic}-{index} could not be opened: {broken}") from broken
        raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")

    @property
    def outages(self) -> int:
        """How often partitions went out of reach or came back."""
        return self.store.outages + self._mended

    def is_away(self, topic: str, index: int) -> bool:
        """Whether what keeps the partition is out of reach for now."""
        found = self._open.get((topic, index))
        return found.away if found is not None else isinstance(self._broken.get((topic, index)), StoreAway)

    @property
    def lacks_room(self) -> bool:
        """Whether a partition could not be opened because the disk was full."""
        return any(map(lacks_room, self._broken.values()))

    async def mend(self, find: Callable[[str], Topic | None]) -> int:
        """Try again to open what was out of reach or had no room; what still is stays remembered. How many are open."""
        before = self._mended
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
                    self._mended += 1
                    log.info("a partition is open now", partition=f"{key[0]}-{key[1]}")
        return self._mended - before

    async def look_for_unknown(self, image: Image) -> None:
        """Find and report topics that have records here and that coordination does not know."""
        self.unknown = await self.store.unknown(image.by_name)
        for found in self.unknown:
            log.warning("topic folder without a topic", topic=found.name, partitions=found.partitions)

    def trouble(self, topic: str, index: int) -> BaseException | None:
        """Why a partition cannot be used, if so."""
        found = self._open.get((topic, index))
        return found.failed if found is not None else self._broken.get((topic, index))

    def broken(self) -> dict[tuple[str, int], BaseException]:
        """Partitions that cannot be used, with the reason."""
        failed = {key: each.failed for key, each in self._open.items() if each.failed is not None}
        return {**self._broken, **failed}

    def is_shared(self, topic: Topic) -> bool:
        """Whether all brokers see the records of this topic."""
        return topic.settings.tidemill_storage == IN_TABLES and self.store.is_shared(IN_TABLES)

    async def follow(
        self, image: Image, node_id: int, names: Collection[str] | None, *, new: bool = True, joined: bool = True
    ) -> None:
        """Open what this broker carries of these topics (None: of all), in its role; close what it carries no more.

        `new`: topics that were not there before were created just now. Before it has `joined` the cluster it leads
        nothing, whatever was so when it stopped.
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
            if (names is None or key[0] in names) and self._lives.get(key) != self._life(wanted, key)
        ]
        await self._let_go(going, image)
        await self._claim_all(image, node_id, names, new=new)
        await _bounded(self._open_or_remember(*wanted[key]) for key in wanted if key not in self._lives)
        if self.replicas is not None:
            changed = (key for key in wanted if key in self._open and self._roles.get(key) != wanted[key][1])
            await _bounded(self._assume(*wanted[key], self._open[key]) for key in changed)

    def step_down(self) -> None:
        """This broker is no member of the cluster: it leads nothing that others carry or see too."""
        for key, partition in self._open.items():
            partition.step_down(replaceable=self._lives[key].epoch is not None and self.replicas is not None)

    async def _let_go(self, keys: Iterable[tuple[str, int]], image: Image) -> None:
        """Close partitions; the records of one that moved to other brokers go, those of a topic go with the topic."""
        work = []
        for key in keys:
            topic_id, epoch = self._lives.pop(key)
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
        """Before the first partition of a topic is opened here: what lies at its place is its own or goes."""
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

    def _life(
        self, wanted: Mapping[tuple[str, int], tuple[Topic, PartitionInfo]], key: tuple[str, int]
    ) -> _Life | None:
        return self._life_of(*wanted[key]) if key in wanted else None

    def _life_of(self, topic: Topic, info: PartitionInfo) -> _Life:
        return _Life(topic.topic_id, info.leader_epoch if self.is_shared(topic) else None)

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
        self._lives[key] = self._life_of(topic, info)
        refused = self._claim_error(topic.name)
        if refused is not None:
            self._remember(key, refused)
            return
        try:
            topic_id = str(topic.topic_id)
            copied = self.replicas is not None and len(info.replicas) > 1
            gone = await self.store.look_for_folder(topic.name, info.index, topic_id, copied=copied)
            partition = await self.store.open(topic.name, info.index, topic.settings, info.leader_epoch, topic_id)
            # Without another replica in sync what is left is served: no other broker has more.
            others = any(node != self._node_id for node in info.isr)
            if copied and (gone or others) and await self.store.drop_lost(partition, topic_id):
                self.lost.add(key)
            await self._assume(topic, info, partition)
            self._open[key] = partition
        except (TidemillError, OSError) as error:
            self._remember(key, error)

    def _remember(self, key: tuple[str, int], error: BaseException) -> None:
        if str(self._broken.get(key)) != str(error):  # once, however often it is tried
            log.error("a partition cannot be opened", partition=f"{key[0]}-{key[1]}", error=str(error))
        self._broken[key] = error


def _passes(error: BaseException) -> bool:
    """Whether what kept a partition from being opened may be over later."""
    return isinstance(error, StoreAway) or lacks_room(error)


def _chosen(image: Image, names: Collection[str] | None) -> list[Topic]:
    if names is None:
        return list(image.by_name.values())
    return [image.by_name[name] for name in names if name in image.by_name]


def _report(results: Iterable[object]) -> int:
    """Say what could not be closed; how many."""
    failures = [error for error in results if isinstance(error, BaseException)]
    for error in failures:
        log.error("a partition could not be closed", error=str(error))
    return len(failures)


async def _bounded(work: Iterable[Awaitable[object]], *, keep_errors: bool = False) -> list[object]:
    """Run coroutines, at most OPENING_MAX at a time; the first error is raised after all have ended."""
    limit = asyncio.Semaphore(OPENING_MAX)

    async def run(each: Awaitable[object]) -> object:
        async with limit:
            return await each

    results = await asyncio.gather(*(run(each) for each in work), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not keep_errors:
            raise result
    return list(results)
