"""What a cluster costs: the time to elect leaders for the partitions of a lost broker, and the memory of metadata.

    python -m benchmarks.cluster [--full] [--partitions 1000]

Three brokers run in this process without doors, on a real etcd with one member (`etcd` has to be on the path); their
partitions are in memory. A topic has so many partitions with three replicas each, of which a third is led by every
broker. Then the lease of one broker is revoked, as if its time had run out; the clock runs from there until another
broker shows an image in which every partition is led by somebody who is there. What is written are one third of the
partitions (a new leader) and the other two (one replica less in sync), so all of them.

The same election is done with ten partitions, and alone, without etcd (`plan`): the ratio says what a partition costs.
Memory is that of the image of a broker with everything it stands on, by tracemalloc.
"""

import argparse
import asyncio
import contextlib
import gc
import shutil
import socket
import subprocess
import tempfile
import time
import tracemalloc
import urllib.request
from collections.abc import AsyncIterator, Iterator
from uuid import UUID, uuid4

import uvloop

from benchmarks.machine import head
from tidemill.app.logs import configure
from tidemill.broker.broker import BrokerEnvironment, BrokerIdentity, BrokerNode
from tidemill.broker.topic_directories import MemoryTopics
from tidemill.cluster.core.changes import plan
from tidemill.cluster.core.image import TOPICS, Image, TopicCreated, encode_state, encode_topic, state_key
from tidemill.cluster.core.placement import place
from tidemill.cluster.core.registration import BROKERS, Endpoint, Registration, encode_registration
from tidemill.cluster.core.view import Told, View
from tidemill.cluster.etcd import EtcdCoordination
from tidemill.model import broker_settings
from tidemill.streams.memory import MemoryLogStore

NODES = (1, 2, 3)
TTL_MS = 60_000


@contextlib.contextmanager
def etcd() -> Iterator[str]:
    """A member of etcd in a temporary folder; its URL."""
    program = shutil.which("etcd")
    assert program, "etcd is not on the path; on Debian: apt-get install etcd-server"
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    options = {
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
    }
    with tempfile.TemporaryDirectory() as folder:
        words = [program, f"--data-dir={folder}/etcd", *(f"--{name}={value}" for name, value in options.items())]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while True:
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{client}/health", timeout=1) as answer:
                    if b'"true"' in answer.read():
                        break
                time.sleep(0.05)
            yield f"etcd://{client.removeprefix('http://')}"
        finally:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def broker(url: str, node_id: int) -> AsyncIterator[BrokerNode]:
    """A broker without doors."""
    coordination = EtcdCoordination(url)
    clock = time.time_ns
    world = BrokerEnvironment(
        coordination,
        MemoryTopics(MemoryLogStore, lambda: clock() // 1_000_000),
        lambda: clock() // 1_000_000,
        uuid4,
        uuid4(),
    )
    node = BrokerNode(world, broker_settings.parse({}), BrokerIdentity(node_id, session_ttl_ms=TTL_MS))
    await node.start()
    node.advertise("127.0.0.1", 1)
    await node.announce()
    try:
        yield node
    finally:
        await node.close()
        await coordination.close()


async def election(url: str, partitions: int) -> tuple[float, float]:
    """Seconds to create a topic, and to have it led by others when a broker is lost."""
    async with broker(url, 1) as first, broker(url, 2) as second, broker(url, 3) as third:
        await asyncio.sleep(1)
        started = time.perf_counter()
        await first.create_topic("bench", partitions=partitions, replication_factor=3)
        created = time.perf_counter() - started
        victim = next(node for node in (third, second) if node.node_id != first.controller_id)
        watcher = next(node for node in (first, second, third) if node is not victim)
        await asyncio.sleep(1)
        session = victim.membership.session
        assert session is not None
        started = time.perf_counter()
        await session.end()  # type: ignore[attr-defined]  # of etcd's sessions
        while any(victim.node_id in info.isr for topic in watcher.topics() for info in topic.partitions):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        elected = time.perf_counter() - started
        assert all(info.leader > 0 for topic in watcher.topics() for info in topic.partitions)
    return created, elected


def changes(partitions: int) -> list[Told]:
    """A topic whose partitions have all changed, and three brokers."""
    topic_id = UUID(int=1)
    topic = Image().apply(TopicCreated("bench", topic_id, place(NODES, 0, partitions, 3), {})).by_name["bench"]
    told = [Told(TOPICS + "bench", encode_topic(topic), 1)]
    told += [Told(state_key(topic_id, info.index), encode_state(info), 2) for info in topic.partitions]
    told += [
        Told(f"{BROKERS}{node}", encode_registration(Registration(node, uuid4(), uuid4(), kafka=Endpoint("h", 1))), 3)
        for node in NODES
    ]
    return told


def memory(partitions: int) -> int:
    """Bytes that a view of so many partitions takes."""
    told = changes(partitions)
    gc.collect()
    tracemalloc.start()
    view = View({})
    view.apply(told)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(view.image.by_name["bench"].partitions) == partitions
    return size


def planning(partitions: int) -> float:
    """Seconds to decide what follows from the loss of a broker."""
    view = View({})
    view.apply([*changes(partitions), Told(f"{BROKERS}3", None, 4)])
    started = time.perf_counter()
    found = list(plan(view.image))
    elapsed = time.perf_counter() - started
    assert len(found) == partitions
    return elapsed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--partitions", type=int, default=1_000)
    options = parser.parse_args()
    configure("error", "human")
    head("cluster")
    few = 10
    for count in (few, options.partitions, *((5_000,) if options.full else ())):
        with etcd() as url:
            created, elected = uvloop.run(election(url, count))
        decided = planning(count)
        print(
            f"{count:6,} partitions: created in {created * 1000:7.0f} ms, led by others {elected * 1000:7.0f} ms after the loss "
            f"({elected * 1e6 / count:6.0f} us each), decided in {decided * 1000:6.1f} ms ({decided / elected:.1%} of it)",
            flush=True,
        )
    base = memory(1)
    per_thousand = (memory(options.partitions) - base) * 1_000 / (options.partitions - 1)
    print(f"metadata: {per_thousand / 1024:,.0f} KiB per 1,000 partitions in each broker")


if __name__ == "__main__":
    main()
