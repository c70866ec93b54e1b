"""Delays the deletion of segment files that are no longer part of a log.

The files stay for `file.delete.delay.ms` under a name that ends in `.deleted`. So an operator who soon notices a wrong
setting can still copy them. The delay starts at the first sweep that finds them. On a full disk they are deleted at
once. The next start deletes what a stopped broker left.
"""

from collections.abc import Sequence
from contextlib import suppress

import structlog

from tidemill.streams.interface import Disk
from tidemill.streams.segments.folders import DELETED
from tidemill.streams.segments.segment import INDEX, LOG, TIMEINDEX, Segment

NOT_YET = -1
LOGGER = structlog.get_logger(__name__)


class RemovedFiles:
    """Files that wait for deletion."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def add(self, paths: Sequence[str]) -> None:
        """Add renamed files."""
        self._since.update(dict.fromkeys(paths, NOT_YET))

    def due(self, now_ms: int, delay_ms: int) -> list[str]:
        """Return the files whose delay is over, and stop tracking them."""
        for path, since_ms in self._since.items():
            if since_ms == NOT_YET:
                self._since[path] = now_ms
        over = [path for path, since_ms in self._since.items() if now_ms - since_ms >= delay_ms]
        for path in over:
            del self._since[path]
        return over


def set_aside(disk: Disk, folder: str, segments: Sequence[Segment]) -> list[str]:
    """Rename the files of segments to `.deleted`. Blocks."""
    paths = []
    for segment in segments:
        stem = segment.path.removesuffix(LOG)
        for ending in (INDEX, TIMEINDEX, LOG):
            with suppress(FileNotFoundError):
                disk.rename(stem + ending, stem + ending + DELETED)
                paths.append(stem + ending + DELETED)
    disk.fsync_dir(folder)
    return paths


def remove_all(disk: Disk, paths: Sequence[str]) -> None:
    """Delete files. A file that cannot be deleted is left to the next start. Blocks."""
    for path in paths:
        try:
            disk.remove(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            LOGGER.warning("segment_delete_failed", path=path, error=str(error))
