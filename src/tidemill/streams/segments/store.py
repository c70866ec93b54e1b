"""The segment logs of all partitions, below one folder: `{topic}/{partition}/`."""

import errno
import os
from functools import partial
from pathlib import Path

import structlog

from tidemill.model.metrics import Histogram
from tidemill.model.topic_settings import TopicSettings
from tidemill.model.topics import VITAL
from tidemill.streams.interface import Disk, FlushFailed
from tidemill.streams.segments import checkpoint as checkpoints
from tidemill.streams.segments.checkpoint import Checkpoint, SegmentNote
from tidemill.streams.segments.disk import RealDisk
from tidemill.streams.segments.folders import DELETED, empty_folder
from tidemill.streams.segments.index import NO_TIMESTAMP
from tidemill.streams.segments.log import SegmentLog
from tidemill.streams.segments.opening import LogOpening, OpenedSegments
from tidemill.streams.segments.reading import SegmentResources
from tidemill.streams.segments.reserve import RESERVE_BYTES

LOGGER = structlog.get_logger(__name__)


class SegmentStore:
    """Opens logs, which share files, threads and memory."""

    def __init__(self, disk: Disk, reserve_bytes: int = 0) -> None:
        self._disk = disk
        self._shared = SegmentResources(disk, reserve_bytes)
        self._reserved = False
        self.missing: list[str] = []
        self._lost_from: dict[str, int] = {}

    @classmethod
    def at(cls, root: Path, flush_duration: Histogram | None = None) -> "SegmentStore":
        """Create a store on the real disk, which counts its flushes in the histogram."""
        return cls(RealDisk(root, flush_duration), RESERVE_BYTES)

    @property
    def full(self) -> bool:
        """Whether the last write found the disk full, and no space was found since."""
        return self._shared.reserve.given_up

    async def open(
        self,
        topic: str,
        index: int,
        settings: TopicSettings,
        *,
        topic_id: str = "",  # noqa: ARG002 - no other broker writes these files
        leader_epoch: int = 0,  # noqa: ARG002 - no other broker writes these files
        believe: bool = True,
        given_offset: int = 0,
    ) -> SegmentLog:
        """Open the log of a partition. Recover it after an unclean stop; check all of it unless `believe`."""
        folder = f"{topic}/{index}"
        if self._shared.failed is not None:
            raise self._shared.failed
        if not self._reserved:
            self._reserved = True
            await self._disk.aside(self._shared.reserve.begin)
        try:
            opened = await self._disk.aside(partial(self._open, folder, settings, believe, given_offset))
        except FlushFailed as error:
            self._shared.fence(error)
            raise
        if opened.report.quarantined:
            LOGGER.error("damaged_batches_quarantined", folder=folder, places=opened.report.quarantined)
        if opened.report.missing:
            self._note_missing(f"{topic}-{index}", folder, opened)
        if opened.report.cut_bytes:
            LOGGER.warning("torn_end_truncated", folder=folder, bytes=opened.report.cut_bytes)
        return SegmentLog(self._shared, folder, settings, opened, vital=topic in VITAL)

    def _note_missing(self, partition: str, folder: str, opened: OpenedSegments) -> None:
        for _, found in opened.report.missing:
            LOGGER.error("segment_missing", folder=folder, found=found, end_offset=opened.end_offset)
            self.missing.append(f"{partition}: {found}; the other records are available")
        self._lost_from[folder] = min(offset for offset, _ in opened.report.missing)

    def lost_from(self, topic: str, index: int) -> int | None:
        """Return the first offset that the log lost with deleted files, or None."""
        return self._lost_from.get(f"{topic}/{index}")

    async def free_reserve(self) -> bool:
        """Free the reserve for another vital write. Records are rejected until the reserve is taken again."""
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return await self._disk.aside(partial(self._shared.reserve.give_up, full))

    async def begin_at(self, topic: str, index: int, offset: int) -> None:
        """Write a checkpoint with the offset where the log continues. LogOpening the log does the rest."""
        await self._disk.aside(partial(self._begin_at, f"{topic}/{index}", offset))

    def _begin_at(self, folder: str, offset: int) -> None:
        self._disk.make_dir(folder)
        note = SegmentNote(offset, 0, NO_TIMESTAMP, 0)
        checkpoints.write(self._disk, folder, Checkpoint(offset, offset, note, (), None))

    async def close(self) -> None:
        """Close all files and stop the threads."""
        self._shared.files.close()
        self._disk.shutdown()

    def _open(self, folder: str, settings: TopicSettings, believe: bool, given_offset: int) -> OpenedSegments:
        empty_folder(self._disk, folder + DELETED)
        checkpoints.remove_spare(self._disk, folder)
        return LogOpening(self._disk, folder, settings, believe=believe, given_offset=given_offset).run()
