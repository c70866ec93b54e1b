"""What a cluster costs: the time to elect leaders for the partitions of a lost broker, and the memory of metadata.

    python -m benchmarks.cluster [--full] [--partitions 1000]

Three brokers run in this process without servers, on a real etcd with one member (`etcd` must be on the PATH). Their
partitions are in memory. The topic has three replicas per partition, and every broker leads a third of the partitions.
Then the etcd lease of one broker is revoked, as if it had expired. The clock runs from there until another broker has
an image in which a live broker leads every partition. The election writes every partition: a third get a new leader,
the others lose one in-sync replica.

The same election runs with ten partitions, and without etcd (`plan`): the ratio is the cost of a partition. Memory is
that of a broker's image with all objects that it refers to, by tracemalloc.
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
from tidemill.app.broker_wiring import make_broker
from tidemill.app.logs import configure
from tidemill.broker.broker import BrokerEnvironment, BrokerIdentity, BrokerNode
from tidemill.broker.topic_directories import MemoryTopics
from tidemill.cluster.core.changes import plan
from tidemill.cluster.core.image import TOPICS, Image, TopicCreated, encode_state, encode_topic, state_key
from tidemill.cluster.core.placement import place
from tidemill.cluster.core.registration import BROKERS, Endpoint, Registration, encode_registration
from tidemill.cluster.core.view import KeyChange, View
from tidemill.cluster.etcd import EtcdCoordination
from tidemill.model import broker_settings
from tidemill.streams.memory import MemoryLogStore

NODES = (1, 2, 3)
TTL_MS = 60_000


@contextlib.contextmanager
def etcd() -> Iterator[str]:
    """Run an etcd member in a temporary folder; yields its URL."""
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
    """A broker without servers."""
    coordination = EtcdCoordination(url)
    clock = time.time_ns
    world = BrokerEnvironment(
        coordination,
        MemoryTopics(MemoryLogStore, lambda: clock() // 1_000_000),
        lambda: clock() // 1_000_000,
        uuid4,
        uuid4(),
    )
    node = make_broker(world, broker_settings.parse({}), BrokerIdentity(node_id, session_ttl_ms=TTL_MS))
    await node.start()
    node.view.advertise("127.0.0.1", 1)
    await node.announce()
    try:
        yield node
    finally:
        await node.stop()
        await coordination.close()


async def election(url: str, partitions: int) -> tuple[float, float]:
    """Seconds to create a topic, and until other brokers lead it after the loss of a broker."""
    async with broker(url, 1) as first, broker(url, 2) as second, broker(url, 3) as third:
        await asyncio.sleep(1)
        started = time.perf_counter()
        await first.topics.create("bench", partitions=partitions, replication_factor=3)
        created = time.perf_counter() - started
        victim = next(node for node in (third, second) if node.node_id != first.view.controller_id)
        watcher = next(node for node in (first, second, third) if node is not victim)
        await asyncio.sleep(1)
        session = victim.membership.session
        assert session is not None
        started = time.perf_counter()
        await session.end()  # type: ignore[attr-defined]  # of etcd's sessions
        while any(victim.node_id in info.isr for topic in watcher.view.topics() for info in topic.partitions):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        elected = time.perf_counter() - started
        assert all(info.leader > 0 for topic in watcher.view.topics() for info in topic.partitions)
    return created, elected


def changes(partitions: int) -> list[KeyChange]:
    """A topic whose partitions have all changed, and three brokers."""
    topic_id = UUID(int=1)
    topic = Image().apply(TopicCreated("bench", topic_id, place(NODES, 0, partitions, 3), {})).by_name["bench"]
    changed = [KeyChange(TOPICS + "bench", encode_topic(topic), 1)]
    changed += [KeyChange(state_key(topic_id, info.index), encode_state(info), 2) for info in topic.partitions]
    changed += [
        KeyChange(
            f"{BROKERS}{node}", encode_registration(Registration(node, uuid4(), uuid4(), kafka=Endpoint("h", 1))), 3
        )
        for node in NODES
    ]
    return changed


def memory(partitions: int) -> int:
    """Bytes of a view with this many partitions."""
    changed = changes(partitions)
    gc.collect()
    tracemalloc.start()
    view = View({})
    view.apply(changed)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(view.image.by_name["bench"].partitions) == partitions
    return size


def planning(partitions: int) -> float:
    """Seconds to decide the elections after the loss of a broker."""
    view = View({})
    view.apply([*changes(partitions), KeyChange(f"{BROKERS}3", None, 4)])
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
