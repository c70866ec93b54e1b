"""The time of each page of the console, with many topics and groups.

    python -m benchmarks.console [--full] [--pages /topics]

A broker in this process has 500 topics and 2,000 groups (5,000 and 10,000 with --full) in memory, and one topic with
1,000 partitions. A client in a thread loads each page. Prints the median and the longest time, the ratio of the longest one to the budget of a page, the
longest time for which the page has blocked the event loop, and the size of the page. The first request of a page, which
compiles its template, is reported on its own.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import httpx
import uvloop
from tests.support.no_sql import NoSql

from benchmarks.machine import head
from benchmarks.metrics import GROUPS, GROUPS_FULL, STEP_S, TOPICS, TOPICS_FULL, fill, now_ms
from tidemill.app.broker_wiring import make_broker
from tidemill.app.logs import quiet_unless_configured
from tidemill.app.process import COLLECT_AFTER
from tidemill.broker.broker import BrokerEnvironment, BrokerNode, ServerAddresses
from tidemill.broker.topic_directories import MemoryTopics
from tidemill.cluster.local import LocalCoordination
from tidemill.model import broker_settings
from tidemill.model.addresses import Address
from tidemill.model.listeners import parse_listeners
from tidemill.servers.http.server import HttpServer
from tidemill.servers.kafka.listener import KafkaServer
from tidemill.streams.memory import MemoryLogStore
from tidemill.timelines.dispatcher import Dispatcher

HOST = "127.0.0.1"
BUDGET_MS = 300
ROUNDS = 9
TIMEOUT_S = 60
WIDE, WIDE_PARTITIONS = "wide", 1_000
PAGES = (
    "/",
    "/topics",
    "/topics?sort=bytes&descending=true",
    "/topics?search=99",
    "/topics?sort=bytes_in&descending=true&internal=true",
    "/topics/topic-7",
    "/topics/topic-7/settings",
    f"/topics/{WIDE}",
    f"/topics/{WIDE}/partitions?sort=records&descending=true",
    f"/topics/{WIDE}/groups",
    f"/topics/{WIDE}/producers",
    "/topics/topic-7/records",
    "/groups",
    "/groups?sort=lag&descending=true",
    "/groups?search=99",
    "/groups/group-7",
    "/timelines",
    "/pipelines",
    "/cluster",
    "/security",
    "/logs",
)


class Timing(NamedTuple):
    """The answers of one page, in milliseconds."""

    first_ms: float
    next_ms: list[float]
    blocked_ms: float
    size: int


class Servers:
    """The Kafka server and the HTTP server of the broker."""

    def __init__(self) -> None:
        self.kafka = KafkaServer()
        self.http: HttpServer | None = None

    async def open_timelines(self, _: BrokerNode) -> Dispatcher | None:
        """No timelines: they are measured by benchmarks of their own."""
        return None

    async def open(self, broker: BrokerNode) -> ServerAddresses:
        """Listen on free ports."""
        self.kafka.prepare(broker)
        listener = parse_listeners(broker.settings.security, Address(HOST, 0), None)[0]
        bound = await self.kafka.listen(listener, HOST, 0)
        broker.view.advertise(*bound)
        self.http = HttpServer(broker, dict, NoSql())
        await self.http.start(HOST, 0)
        await self.http.loaded()
        return ServerAddresses(None, self.http.address)

    async def close(self) -> None:
        """Close both."""
        if self.http is not None:
            await self.http.close()
        await self.kafka.close()


async def load(url: str) -> Timing:
    """Load a page several times, and watch the event loop meanwhile."""
    longest, done = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not done.is_set():
            began = time.perf_counter()
            await asyncio.sleep(STEP_S)
            longest = max(longest, time.perf_counter() - began - STEP_S)

    def times() -> tuple[list[float], int]:
        with httpx.Client(timeout=TIMEOUT_S) as client:
            found, size = [], 0
            for _ in range(ROUNDS + 1):
                began = time.perf_counter()
                answer = client.get(url)
                found.append((time.perf_counter() - began) * 1000)
                answer.raise_for_status()
                size = len(answer.content)
            return found, size

    watching = asyncio.create_task(watch())
    (first, *later), size = await asyncio.to_thread(times)
    done.set()
    await watching
    return Timing(first, later, longest * 1000, size)


async def run(topics: int, groups: int, pages: Sequence[str]) -> None:
    """Measure the pages and print the times."""
    with tempfile.TemporaryDirectory(prefix="tidemill-console-") as folder:
        coordination = await LocalCoordination.open(Path(folder))
        store = MemoryTopics(MemoryLogStore, now_ms)
        broker = make_broker(BrokerEnvironment(coordination, store, now_ms, uuid4), broker_settings.parse({}))
        servers = Servers()
        await broker.start(servers)
        try:
            await fill(broker, topics, groups)
            await broker.topics.create(WIDE, partitions=WIDE_PARTITIONS)
            gc.collect()
            gc.freeze()  # as after the start of a broker with this data
            print(f"{topics:,} topics and {groups:,} groups; the budget of a page is {BUDGET_MS} ms")
            print(f"{'page':38} {'first':>8} {'median':>8} {'longest':>8} {'of budget':>9} {'blocked':>8} {'size':>9}")
            address = ":".join(map(str, servers.http.address)) if servers.http else ""
            for page in pages:
                found = await load(f"http://{address}{page}")
                worst = max(found.next_ms)
                print(
                    f"{page:38} {found.first_ms:5.0f} ms {statistics.median(found.next_ms):5.0f} ms {worst:5.0f} ms "
                    f"{worst / BUDGET_MS:8.2f}x {found.blocked_ms:5.0f} ms {found.size / 1000:6.0f} KB",
                    flush=True,
                )
        finally:
            await broker.stop()
            await coordination.close()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="time of the pages of the console")
    parser.add_argument("--full", action="store_true", help="5,000 topics and 10,000 groups")
    parser.add_argument("--pages", default="", help="only pages whose paths begin with this")
    asked = parser.parse_args()
    full, pages = asked.full, [each for each in PAGES if each.startswith(asked.pages)]
    head("console")
    quiet_unless_configured()
    gc.set_threshold(*COLLECT_AFTER)
    uvloop.run(run(TOPICS_FULL if full else TOPICS, GROUPS_FULL if full else GROUPS, pages))


if __name__ == "__main__":
    main()
