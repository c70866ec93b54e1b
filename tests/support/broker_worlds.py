"""A broker without servers on a clock of its own, in a folder or in memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from tidemill.app.broker_wiring import make_broker
from tidemill.broker.broker import BrokerEnvironment, BrokerNode
from tidemill.broker.topic_directories import STREAMS, MemoryTopics, TopicDirectories
from tidemill.cluster.local import LocalCoordination
from tidemill.model import broker_settings
from tidemill.records.build import NewRecord, build_batch
from tidemill.streams.memory import MemoryLogStore
from tidemill.streams.segments import SegmentStore
from tidemill.testing.clock import VirtualClock


@asynccontextmanager
async def running(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    *,
    memory: bool = False,
    clock: VirtualClock | None = None,
) -> AsyncIterator[BrokerNode]:
    clock = clock or VirtualClock()
    coordination = await LocalCoordination.open(folder)
    store = (
        MemoryTopics(MemoryLogStore, clock)
        if memory
        else TopicDirectories(folder, SegmentStore.at(folder / STREAMS), clock)
    )
    broker = make_broker(BrokerEnvironment(coordination, store, clock, uuid4), broker_settings.parse(settings or {}))
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()
        await coordination.close()


def batch_of(*values: bytes) -> bytearray:
    return build_batch([NewRecord(None, value, timestamp=1_700_000_000_000) for value in values])
