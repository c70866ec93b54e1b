"""Routes partitions to files or to tables, by topic.

`tidemill.storage` decides for a topic; otherwise the broker's own default applies. Records are never looked for in the
wrong place: a topic that has records stays where they are, whatever the default for new topics is. The engine of the
tables is opened when the first topic needs it. A broker whose topics are all in files never loads it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

from tidemill.broker.partitions import PartitionStore, StorageUsage
from tidemill.broker.topic_directories import STREAMS
from tidemill.model.topic_settings import BROKERS_CHOICE, IN_SEGMENTS, IN_TABLES, TopicSettings
from tidemill.model.topics import UnknownTopic
from tidemill.streams.interface import LogStore
from tidemill.streams.opener import OpenPartition, opener
from tidemill.streams.partition import Partition


class TableLogs(LogStore, Protocol):
    """Logs in tables, which know topics as a whole."""

    @property
    def outages(self) -> int:
        """How often the storage of logs became unreachable or reachable again."""

    @property
    def servers(self) -> int:
        """How many servers store the logs."""

    async def has_topic(self, topic: str) -> bool:
        """Whether any record of the topic is stored."""

    async def remove_topic(self, topic: str, topic_id: str) -> None:
        """Delete all data of the topic, and none of another topic of this name. Safe to repeat, also much later."""

    async def set_aside(self, topic: str) -> None:
        """Move data of an unknown topic away, so that a new topic can use its name."""


class StorageRouter:
    """Files in a data directory, and tables that are opened on first use."""

    def __init__(
        self,
        data_dir: Path,
        files: PartitionStore,
        open_tables: Callable[[], Awaitable[TableLogs]],
        tables_exist: Callable[[], bool],
        clock: Callable[[], int],
        *,
        default: str,
        on_servers: bool = False,
    ) -> None:
        self._streams = data_dir / STREAMS
        self._files = files
        self._open_tables = open_tables
        self._tables_exist = tables_exist
        self._clock = clock
        self._default = default
        self._on_servers = on_servers
        self._opening = asyncio.Lock()
        self._tables: TableLogs | None = None
        self._open_in_tables: OpenPartition | None = None
        self._in_tables: set[str] = set()
        self._in_files: set[str] = set()
        """Topics known to be in files: the directory of a topic with thousands of partitions is checked only once."""

    @property
    def outages(self) -> int:
        """How often the storage of partitions became unreachable or reachable again."""
        return self._tables.outages if self._tables is not None else 0

    @property
    def full(self) -> bool:
        """Whether the disk of the files is full; the internal topics are on it."""
        return self._files.full

    @property
    def missing(self) -> Sequence[str]:
        """What files had at the last stop and do not have now."""
        return self._files.missing

    def is_in_tables(self, topic: str) -> bool:
        """Whether the topic's records are rows."""
        return topic in self._in_tables

    def is_shared(self, storage: str) -> bool:
        """Whether records of topics with this storage are on servers, which all brokers share."""
        return self._on_servers and (self._default if storage == BROKERS_CHOICE else storage) == IN_TABLES

    async def servers(self) -> int:
        """The number of servers that store the tables; opens the tables."""
        return (await self._load()).servers

    async def usage(self) -> StorageUsage:
        """The directory of the files and its disk."""
        return await self._files.usage()

    async def open(
        self, topic: str, index: int, settings: TopicSettings, leader_epoch: int, topic_id: str
    ) -> Partition:
        """The partition as it was left, or a new one."""
        if await self._place_of(topic, settings) == IN_SEGMENTS:
            opened = await self._files.open(topic, index, settings, leader_epoch, topic_id)
            self._in_files.add(topic)
            return opened
        tables = await self._load()
        if self._open_in_tables is None:
            self._open_in_tables = opener(tables, self._clock)
        self._in_tables.add(topic)
        return await self._open_in_tables(topic, index, settings, leader_epoch, topic_id)

    async def claim(self, topic: str, topic_id: str, *, new: bool) -> None:
        """Move data of unknown topics away, in files and in tables."""
        self._in_files.discard(topic)
        await self._files.claim(topic, topic_id, new=new)
        # On servers, a topic that is new to this broker may have records of other brokers. A database has one cluster.
        if new and not self._on_servers and self._tables_exist():
            tables = await self._load()
            if await tables.has_topic(topic):
                await tables.set_aside(topic)

    async def free_reserve(self) -> bool:
        """Free the disk space that is reserved on the disk of the files."""
        return await self._files.free_reserve()

    async def look_for_folder(self, topic: str, index: int, topic_id: str, *, copied: bool) -> bool:
        """Whether a partition in files has lost its directory."""
        return await self._files.look_for_folder(topic, index, topic_id, copied=copied)

    async def drop_lost(self, partition: Partition, topic_id: str) -> bool:
        """Truncate a replica in files at its first lost record."""
        return partition.topic in self._in_files and await self._files.drop_lost(partition, topic_id)

    async def losses_given_up(self) -> None:
        """Clear the record of losses, because those replicas are no longer in sync."""
        await self._files.losses_given_up()

    async def forget(self, topic_id: str, index: int) -> None:
        """Record that a partition in files is about to be deleted; tables have their own record."""
        await self._files.forget(topic_id, index)

    async def unknown(self, known: Collection[str]) -> list[UnknownTopic]:
        """Topics in files that are not among the known names; unknown rows are moved away by `claim`."""
        return await self._files.unknown(known)

    async def remove(self, topic: str, topic_id: str) -> None:
        """Remove the data of a topic from files and tables."""
        self._in_tables.discard(topic)
        self._in_files.discard(topic)
        await self._files.remove(topic, topic_id)
        if self._tables_exist():
            await (await self._load()).remove_topic(topic, topic_id)

    async def close(self, *, clean: bool) -> None:
        """Close both stores."""
        if self._tables is not None:
            await self._tables.close()
        await self._files.close(clean=clean)

    async def _load(self) -> TableLogs:
        async with self._opening:
            if self._tables is None:
                self._tables = await self._open_tables()
            return self._tables

    async def _place_of(self, topic: str, settings: TopicSettings) -> str:
        if settings.tidemill_storage != BROKERS_CHOICE:
            return settings.tidemill_storage
        if self._has_files(topic):
            return IN_SEGMENTS
        if self._default == IN_SEGMENTS and self._tables_exist() and await (await self._load()).has_topic(topic):
            return IN_TABLES
        return self._default

    def _has_files(self, topic: str) -> bool:
        folder = self._streams / topic
        return topic in self._in_files or (folder.is_dir() and any(each.name.isdigit() for each in folder.iterdir()))
