"""The storage of partitions: topic directories in a data directory, or memory.

The directory of a partition is `{data-dir}/streams/{topic}/{partition}`. A deleted topic is first moved to
`{data-dir}/deleted/{topic id}` and then removed in the background. So its name is free at once, and a crash leaves
either the whole topic or nothing under its name. The next start removes what is left in `deleted`.

A topic directory contains the topic's id, and only a recorded deletion of that id removes it (deletions.py). Any other
directory under the name of a new topic is moved to `{data-dir}/orphans`. It is never removed and never used for the new
topic's records. So a lost coordination journal loses no records.

The file `clean-shutdown` in the data directory means that every log was closed properly. It is removed before the first
log is opened. A start without it logs that the logs are checked, which takes longer.
"""

import asyncio
import shutil
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import structlog

from tidemill.broker.manifest import FILE as MANIFEST
from tidemill.broker.manifest import Manifest, PartitionKey
from tidemill.broker.partitions import StorageUsage
from tidemill.durable_files import replace_file, sync
from tidemill.model.errors import KafkaStorageError
from tidemill.model.topic_settings import TopicSettings
from tidemill.model.topics import UnknownTopic
from tidemill.streams.interface import LogStore
from tidemill.streams.opener import OpenPartition, opener
from tidemill.streams.partition import Partition

CLEAN_MARKER = "clean-shutdown"
STREAMS = "streams"
TOPIC_ID = "topic-id"
ORPHANS = "orphans"
"""Directories that had the name of a new topic and no recorded deletion."""

log = structlog.get_logger("tidemill.broker")


class TopicDirectories:
    """The partitions of a data directory; `logs` stores them in its directory `streams`."""

    outages = 0

    def __init__(self, data_dir: Path, logs: LogStore, clock: Callable[[], int], *, had_manifest: bool = False) -> None:
        self._data_dir = data_dir
        self._streams = data_dir / STREAMS
        self._deleted = data_dir / "deleted"
        self._logs = logs
        self._open: OpenPartition = opener(logs, clock)
        self._removals: set[asyncio.Task[None]] = set()
        self._manifest = Manifest(data_dir)
        self._opened: dict[PartitionKey, Partition] = {}
        self._lost: list[str] = []
        if self._manifest.problem == "damaged" or (had_manifest and self._manifest.problem):
            self._lost.append(f"{MANIFEST} is {self._manifest.problem}: missing directories are not noticed")
            log.error("manifest_lost", problem=self._manifest.problem)
        self._streams.mkdir(parents=True, exist_ok=True)
        self._deleted.mkdir(exist_ok=True)
        if not self._take_marker():
            log.warning("unclean_shutdown_detected", data_dir=str(data_dir))
        for left in list(self._deleted.iterdir()):
            self._remove_later(left)

    @property
    def full(self) -> bool:
        """Whether the disk is full."""
        return self._logs.full

    @property
    def missing(self) -> Sequence[str]:
        """Data that was stored at the last stop and is missing now."""
        return [*self._lost, *self._logs.missing]

    def is_in_tables(self, topic: str) -> bool:  # noqa: ARG002 -- part of the store's interface
        """Always false."""
        return False

    def is_shared(self, storage: str) -> bool:  # noqa: ARG002 -- part of the store's interface
        """Always false: each broker has its own directory."""
        return False

    async def servers(self) -> int:
        """Always 1: the broker itself."""
        return 1

    async def usage(self) -> StorageUsage:
        """The directory of the partitions and its disk."""
        usage = await asyncio.to_thread(shutil.disk_usage, self._streams)
        return StorageUsage(str(self._streams.absolute()), usage.total, usage.free)

    async def open(
        self, topic: str, index: int, settings: TopicSettings, leader_epoch: int, topic_id: str
    ) -> Partition:
        """The partition as it was left, or a new one."""
        key = PartitionKey(topic_id, index)
        bound = self._manifest.bounds.get(key, 0)
        opened = await self._open(topic, index, settings, leader_epoch, topic_id, given_offset=bound)
        self._opened[key] = opened
        if key not in self._manifest.bounds:
            self._manifest.bounds[key] = 0
            self._manifest.change()
        opened.reserve(bound, partial(self._manifest.raise_bound, key))
        return opened

    async def free_reserve(self) -> bool:
        """Free the disk space that is reserved for the broker itself; whether there was any."""
        return await self._logs.free_reserve()

    async def look_for_folder(self, topic: str, index: int, topic_id: str, *, copied: bool) -> bool:
        """Whether the directory is missing. Without other replicas, the log then starts at its recorded end."""
        key = PartitionKey(topic_id, index)
        end_offset = self._manifest.bounds.get(key)
        if end_offset is None or (self._streams / topic / str(index)).is_dir():
            return False
        log.error("partition_directory_missing", partition=f"{topic}-{index}", end_offset=end_offset, copied=copied)
        if copied:
            await self._record_loss(key)
        else:
            await self._logs.begin_at(topic, index, end_offset)
        then = "they are copied from the leader" if copied else "new records get later offsets"
        self._lost.append(
            f"{topic}-{index}: its folder is missing, with the records before offset {end_offset}; {then}"
        )
        return True

    async def drop_lost(self, partition: Partition, topic_id: str) -> bool:
        """Truncate a replica at its first lost record; the loss stays recorded until `losses_given_up`."""
        key = PartitionKey(topic_id, partition.index)
        lost_from = self._logs.lost_from(partition.topic, partition.index)
        if lost_from is not None:
            await self._record_loss(key)
            await partition.follower.truncate(lost_from)
        return key in self._manifest.lost

    async def losses_given_up(self) -> None:
        """Clear the record of losses: those replicas are no longer in sync and copy everything again."""
        if self._manifest.lost or self._manifest.problem:
            self._manifest.lost.clear()
            self._manifest.change()
            await self._manifest.written()

    async def _record_loss(self, key: PartitionKey) -> None:
        self._manifest.lost.add(key)
        self._manifest.change()
        if not await self._manifest.written():
            raise KafkaStorageError(f"a loss of records cannot be recorded in {MANIFEST}: the disk is full")

    async def forget(self, topic_id: str, index: int) -> None:
        """Remove a partition from the manifest, durably, before it is deleted."""
        if self._drop(PartitionKey(topic_id, index)):
            await self._manifest.written()

    def _drop(self, key: PartitionKey) -> bool:
        self._opened.pop(key, None)
        self._manifest.lost.discard(key)
        known = self._manifest.bounds.pop(key, None) is not None
        if known:
            self._manifest.change()
        return known

    async def claim(self, topic: str, topic_id: str, *, new: bool) -> None:
        """Write the topic's id into its directory; a directory of another topic is moved to `orphans`."""
        await asyncio.to_thread(self._claim, self._streams / topic, topic_id, new)

    async def unknown(self, known: Collection[str]) -> list[UnknownTopic]:
        """The directories of topics that are not among the known names."""
        return await asyncio.to_thread(unknown_topics, self._data_dir, known)

    def _claim(self, folder: Path, topic_id: str, new: bool) -> None:
        known = read_topic_id(folder)
        if known == topic_id:
            return
        if known or (folder.exists() and new):
            self._set_aside(folder)
        made = not folder.exists()
        folder.mkdir(exist_ok=True)
        try:
            _mark(folder, topic_id)
        except OSError:
            with suppress(OSError):  # a directory without an id would have no owner at the next try
                if made:
                    folder.rmdir()
            raise

    async def remove(self, topic: str, topic_id: str) -> None:
        """Move the topic away durably; its files are removed in the background. Another topic's directory stays."""
        for key in [key for key in self._manifest.bounds if key.topic_id == topic_id]:
            self._drop(key)
        target = self._deleted / topic_id
        folder = self._streams / topic
        if folder.exists() and read_topic_id(folder) in {topic_id, ""}:
            await asyncio.to_thread(self._move, folder, target)
        if target.exists():
            self._remove_later(target)

    async def close(self, *, clean: bool) -> None:
        """Finish removals, and write the marker after a clean stop."""
        await asyncio.gather(*self._removals, return_exceptions=True)
        await self._logs.close()
        ends = {key: each.log_end_offset for key, each in self._opened.items() if each.failed is None}
        self._manifest.bounds.update(ends)
        self._manifest.change()
        await self._manifest.written()
        if clean:
            await asyncio.to_thread(self._leave_marker)

    def _remove_later(self, folder: Path) -> None:
        task = asyncio.ensure_future(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    def _set_aside(self, folder: Path) -> None:
        orphans = self._data_dir / ORPHANS
        orphans.mkdir(exist_ok=True)
        target = next(path for number in count() if not (path := orphans / f"{folder.name}~{number}").exists())
        self._move(folder, target)
        log.error("directory_of_another_topic_moved", directory=str(folder), target=str(target))

    def _move(self, folder: Path, target: Path) -> None:
        folder.rename(target)
        sync(target.parent)
        sync(folder.parent)

    def _take_marker(self) -> bool:
        marker = self._data_dir / CLEAN_MARKER
        clean = marker.exists() or not any(self._streams.iterdir())
        marker.unlink(missing_ok=True)
        sync(self._data_dir)
        return clean

    def _leave_marker(self) -> None:
        (self._data_dir / CLEAN_MARKER).touch()
        sync(self._data_dir)


class MemoryTopics:
    """Partitions in memory, lost with the process; each topic has its own store, which is dropped with it."""

    outages = 0
    full = False
    missing: Sequence[str] = ()

    def __init__(self, make_logs: Callable[[], LogStore], clock: Callable[[], int]) -> None:
        self._make_logs = make_logs
        self._clock = clock
        self._open: dict[str, OpenPartition] = {}

    def is_in_tables(self, topic: str) -> bool:  # noqa: ARG002 -- part of the store's interface
        """Always false."""
        return False

    def is_shared(self, storage: str) -> bool:  # noqa: ARG002 -- part of the store's interface
        """Always false: each broker has its own memory."""
        return False

    async def servers(self) -> int:
        """Always 1: the broker itself."""
        return 1

    async def usage(self) -> StorageUsage:
        """The size of memory is unknown here."""
        return StorageUsage("memory", -1, -1)

    async def open(
        self, topic: str, index: int, settings: TopicSettings, leader_epoch: int, topic_id: str
    ) -> Partition:
        """A new partition."""
        if topic not in self._open:
            self._open[topic] = opener(self._make_logs(), self._clock)
        return await self._open[topic](topic, index, settings, leader_epoch, topic_id)

    async def claim(self, topic: str, topic_id: str, *, new: bool) -> None:
        """Nothing to do: memory has no data of other topics."""

    async def forget(self, topic_id: str, index: int) -> None:
        """Nothing to do: there is no manifest."""

    async def free_reserve(self) -> bool:
        """Always false: there is no reserve."""
        return False

    async def look_for_folder(self, topic: str, index: int, topic_id: str, *, copied: bool) -> bool:  # noqa: ARG002
        """Always false: there are no directories."""
        return False

    async def drop_lost(self, partition: Partition, topic_id: str) -> bool:  # noqa: ARG002 -- the store's interface
        """Always false: records are lost only with the process."""
        return False

    async def losses_given_up(self) -> None:
        """Nothing to do: there is no manifest."""

    async def unknown(self, known: Collection[str]) -> list[UnknownTopic]:  # noqa: ARG002 -- the store's interface
        """Always empty: memory has no data of other topics."""
        return []

    async def remove(self, topic: str, topic_id: str) -> None:  # noqa: ARG002 -- the store's interface names both
        """Drop the topic."""
        self._open.pop(topic, None)

    async def close(self, *, clean: bool) -> None:
        """Nothing to do: there are no files."""


def read_topic_id(folder: Path) -> str:
    """The id of the topic that owns a directory; empty when the directory has none."""
    mark = folder / TOPIC_ID
    return mark.read_text() if mark.exists() else ""


def unknown_topics(data_dir: Path, known: Collection[str]) -> list[UnknownTopic]:
    """The topic directories of a data directory that have partitions and whose topic is not known."""
    streams = data_dir / STREAMS
    found = []
    for folder in sorted(streams.iterdir()) if streams.is_dir() else []:
        if folder.name in known or not folder.is_dir():
            continue
        indexes = [int(each.name) for each in folder.iterdir() if each.name.isdigit() and each.is_dir()]
        if indexes:
            found.append(UnknownTopic(folder.name, read_topic_id(folder), max(indexes) + 1))
    return found


def _mark(folder: Path, topic_id: str) -> None:
    """Write the topic's id into its directory: completely or not at all, also when the disk is full."""
    replace_file(folder / TOPIC_ID, topic_id.encode())
    sync(folder.parent)
