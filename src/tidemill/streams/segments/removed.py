"""Files of segments that are no longer part of a log.

For `file.delete.delay.ms` they stay under a name that ends in `.deleted`, so that an operator who notices a wrong
setting soon can still copy them. The time counts from the first sweep that finds them. On a full disk they are removed
at once, and what a stopped broker leaves is removed by its next start.
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
    """Files that wait for their end."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def add(self, paths: Sequence[str]) -> None:
        """Take files that were set aside."""
        self._since.update(dict.fromkeys(paths, NOT_YET))

    def due(self, now_ms: int, delay_ms: int) -> list[str]:
        """The files whose time is over; they are forgotten here."""
        for path, since_ms in self._since.items():
            if since_ms == NOT_YET:
                self._since[path] = now_ms
        over = [path for path, since_ms in self._since.items() if now_ms - since_ms >= delay_ms]
        for path in over:
            del self._since[path]
        return over


def set_aside(disk: Disk, folder: str, segments: Sequence[Segment]) -> list[str]:
    """Take their names from the files of segments; blocks."""
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
    """Remove files; one that cannot be removed is left to the next start. Blocks."""
    for path in paths:
        try:
            disk.remove(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            LOGGER.warning("a removed segment stays until the next start", path=path, error=str(error))
