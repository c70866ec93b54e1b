"""What the loads of brokers cost in coordination: writes and bytes, with and without traffic.

    python -m benchmarks.broker_loads

Three real brokers with etcd. Prints the writes of each broker in half a minute, and the size of their documents.
"""

import asyncio
import os
import platform
import time

from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.metrics import scraped

from tidemill import TopicProducer
from tidemill.cluster.etcd import EtcdCoordination

SECONDS = 30
WRITES = "tidemill_broker_load_writes_total"


def writes(brokers: Brokers) -> list[float]:
    """How often each broker has published its load."""
    return [scraped(f"http://{servers['http']}")[WRITES] for servers in brokers.servers.values()]


def sizes(brokers: Brokers) -> list[int]:
    """The bytes of the documents."""

    async def read() -> list[int]:
        store = EtcdCoordination(brokers._url)
        try:
            return [len(each.value) for each in (await store.get_prefix("loads/")).entries.values()]
        finally:
            await store.close()

    return asyncio.run(read())


def main() -> None:
    """Print the figures."""
    print(f"machine: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}")
    with running_brokers(3, grpc="127.0.0.1:0", http="127.0.0.1:0") as brokers:
        time.sleep(10)
        before = writes(brokers)
        time.sleep(SECONDS)
        idle = writes(brokers)
        with TopicProducer(str(brokers.servers[1]["grpc"]), "orders", partitions=3, replication_factor=3) as producer:
            ends_s = time.monotonic() + SECONDS
            while time.monotonic() < ends_s:
                producer.send(b"x" * 100)
                time.sleep(0.002 if int(time.monotonic() / 5) % 2 else 0.02)
        loaded = writes(brokers)
        for name, first, last in (("idle", before, idle), ("changing load", idle, loaded)):
            counts = ", ".join(f"{now - then:g}" for then, now in zip(first, last, strict=True))
            print(f"{name:14}: {counts} writes of the three brokers in {SECONDS} s")
        print(f"documents     : {', '.join(map(str, sizes(brokers)))} bytes")


if __name__ == "__main__":
    main()
