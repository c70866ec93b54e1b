"""Engines by their URL: the one place that names adapters."""

from collections.abc import Callable

from tidemill.broker.partitions import PartitionStore
from tidemill.broker.stores import STREAMS, MemoryTopics, TopicFolders
from tidemill.cluster.interface import Coordination
from tidemill.cluster.local import LocalCoordination
from tidemill.settings import Settings
from tidemill.streams.memory import MemoryStore
from tidemill.streams.segments import SegmentStore


async def open_coordination(settings: Settings) -> Coordination:
    """Where brokers agree; `local:` is the only engine so far, and settings refuse others."""
    return await LocalCoordination.open(settings.data_dir)


def open_streams(settings: Settings, clock_ms: Callable[[], int]) -> PartitionStore:
    """Where partitions are kept."""
    if settings.streams.startswith("memory:"):
        return MemoryTopics(MemoryStore, clock_ms)
    logs = SegmentStore.at(settings.data_dir / STREAMS)
    return TopicFolders(settings.data_dir, logs, clock_ms)
