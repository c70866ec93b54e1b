"""The space of the disk that has the data directory, for /metrics.

A thread asks the system for it: the call waits for as long as a network file system does not answer.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage

from tidemill.model.metrics import Gauge, MetricReading

SAMPLE_S = 10.0


class DiskSpace:
    """The space at the last look; nothing while it is not known."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: tuple[int, int] | None = None

    async def sample(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(SAMPLE_S)

    async def look(self) -> None:
        """Ask the system."""
        try:
            usage = await asyncio.to_thread(disk_usage, self._folder)
        except OSError:
            self._found = None
        else:
            self._found = usage.free, usage.total

    def used_share(self) -> float:
        """The share that is in use, from 0 to 1; 0 while it is not known."""
        return 0.0 if not self._found or not self._found[1] else 1 - self._found[0] / self._found[1]

    def readings(self) -> Iterator[MetricReading]:
        """The values of the last look."""
        if self._found is not None:
            free, total = self._found
            yield Gauge("tidemill_disk_free_bytes", "Free space of the disk with the data directory.", free)
            yield Gauge("tidemill_disk_size_bytes", "Size of the disk with the data directory.", total)
