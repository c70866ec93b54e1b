"""Engines by their URL: the one place that names adapters."""

from collections.abc import Callable
from pathlib import Path

from tidemill.broker.partitions import PartitionStore
from tidemill.broker.stores import STREAMS, MemoryTopics, TopicFolders
from tidemill.cluster.interface import Coordination
from tidemill.cluster.local import LocalCoordination
from tidemill.settings import Settings
from tidemill.streams.memory import MemoryStore
from tidemill.streams.segments import SegmentStore
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.memory import MemoryStore as TimelinesInMemory
from tidemill.timelines.sqlite import open_store

TIMELINES = "timelines.db"


async def open_coordination(settings: Settings) -> Coordination:
    """Where brokers agree; `local:` is the only engine so far, and settings refuse others."""
    return await LocalCoordination.open(settings.data_dir)


async def open_timelines(settings: Settings) -> TimelineStore:
    """Where timelines are kept; only the engine that is asked for is loaded."""
    url = settings.timelines
    if url.startswith("memory:"):
        return TimelinesInMemory()
    if url.startswith(("postgresql:", "postgres:")):
        from tidemill.timelines.postgres import open_store as open_postgres  # noqa: PLC0415 -- an extra

        return await open_postgres(url)
    path = url.removeprefix("sqlite:").removeprefix("//")
    return await open_store(Path(path) if path else settings.data_dir / TIMELINES)


def open_streams(settings: Settings, clock_ms: Callable[[], int]) -> PartitionStore:
    """Where partitions are kept."""
    if settings.streams.startswith("memory:"):
        return MemoryTopics(MemoryStore, clock_ms)
    logs = SegmentStore.at(settings.data_dir / STREAMS)
    return TopicFolders(settings.data_dir, logs, clock_ms)
