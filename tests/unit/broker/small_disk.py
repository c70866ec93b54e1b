"""A broker of a cluster on a disk that a test can fill."""

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

from tests.support.shared_store import Line, Store
from tests.support.waiting import eventually_async

from tidemill.app.broker_wiring import make_broker
from tidemill.broker.broker import BrokerEnvironment, BrokerIdentity, BrokerNode
from tidemill.broker.topic_directories import TopicDirectories
from tidemill.cluster.core.image import PartitionInfo, Topic, encode_topic
from tidemill.model import broker_settings
from tidemill.model.topic_settings import parse
from tidemill.streams.segments import RealDisk, SegmentStore
from tidemill.testing.clock import VirtualClock


class SmallDisk(RealDisk):
    """A real disk that takes no more when the test says so."""

    full = False

    def write(self, file: int, buffers: object, position: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(file, buffers, position)  # type: ignore[arg-type]

    def open(self, path: str, *, create: bool = False) -> int:
        if self.full and create:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, create=create)

    def allocate(self, file: int, size: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(file, size)


@asynccontextmanager
async def member(folder: Path, store: Store, disk: SmallDisk, clock: VirtualClock) -> AsyncIterator[BrokerNode]:
    """A broker that is alone in a cluster, with a topic."""
    topics = TopicDirectories(folder, SegmentStore(disk, 4096), clock)
    world = BrokerEnvironment(Line(store), topics, clock, uuid4, UUID(int=1))
    settings = broker_settings.parse({"replica.lag.time.max.ms": "200"})
    broker = make_broker(world, settings, BrokerIdentity(1, session_ttl_ms=60_000))
    try:
        await broker.start()
        broker.view.advertise("127.0.0.1", 9999)
        await broker.announce()
        await broker.topics.create("orders", partitions=2)
        yield broker
    finally:
        await broker.stop()


def put_topic(store: Store, name: str) -> None:
    """Another broker has created a topic that this one carries."""
    info = PartitionInfo(0, 1, (1,), (1,), 0)
    store.put(f"topics/{name}", encode_topic(Topic(name, uuid4(), (info,), {}, parse({}))))


async def until_known(broker: BrokerNode, topic: str) -> None:
    await eventually_async(lambda: broker.view.topic(topic) is not None)
