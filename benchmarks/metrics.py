"""The cost of metrics: a scrape with many topics and groups, and counting on the produce path.

    python -m benchmarks.metrics [--full]
    python -m benchmarks.metrics --instructions

A broker in this process has 500 topics and 2,000 groups (5,000 and 10,000 with --full) in memory. Each group has read
one of the two records of a topic. Prints how long a first and a next scrape take, the longest time for which each has
blocked the event loop, and the size of the text. The first ones look for unread records; the lag of groups that have
not moved is known then. At last it prints the time for counting one produced batch, and its share of the processor time
of a broker for a Produce request with one small record.

`--instructions` compares instructions of the processor instead, which other load does not change: those of counting one
Produce request, those of a server for a Produce request with one record, and those of a server whose source has no lines
that count. The kernel is not counted. `python -m benchmarks.counting` compares the same two servers in seconds.
"""

import argparse
import asyncio
import gc
import socket
import struct
import tempfile
import time
from pathlib import Path
from typing import IO
from uuid import uuid4

import psutil
import uvloop
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.instructions import instructions
from benchmarks.machine import head
from benchmarks.uncounted import uncounted_tree
from tidemill.app.broker_wiring import make_broker
from tidemill.app.logs import quiet_unless_configured
from tidemill.app.process import COLLECT_AFTER
from tidemill.broker.broker import BrokerEnvironment, BrokerNode
from tidemill.broker.group_lag import FRESH_S
from tidemill.broker.metrics import BrokerMetrics
from tidemill.broker.prometheus import exposition
from tidemill.broker.topic_directories import MemoryTopics
from tidemill.client.kafka import KafkaClient
from tidemill.client.kafka.produce import produce_request
from tidemill.cluster.local import LocalCoordination
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.model import broker_settings
from tidemill.model.topics import TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.security.core.event_limiter import EventLimiter
from tidemill.servers.kafka.client_channel import PRODUCE as PRODUCE_KEY
from tidemill.servers.kafka.client_channel import ClientChannel
from tidemill.servers.kafka.listener import KafkaServer
from tidemill.servers.kafka.request_traffic import RequestTraffic
from tidemill.streams.memory import MemoryLogStore
from tidemill.testing import Broker

STEP_S = 0.001
ROUNDS = 200_000
COUNTED_FEW, COUNTED_MANY = 1_000, 101_000
SERVED_FEW, SERVED_MANY = 200, 1_200
HOST, LOOK_S = "127.0.0.1", 0.5
PRODUCE_VERSION = 9
REQUESTS = 5_000
AT_ONCE = 200
NEXT = 5
WAIT_S = 60
TOPICS, GROUPS = 500, 2_000
TOPICS_FULL, GROUPS_FULL = 5_000, 10_000


def now_ms() -> int:
    """The time of this machine."""
    return time.time_ns() // 1_000_000


def small_batch() -> bytearray:
    """A batch of one record."""
    return build_batch([NewRecord(None, b"v" * 100, timestamp=now_ms())])


async def fill(broker: BrokerNode, topics: int, groups: int) -> None:
    """Create the topics with two records each, and the groups, which have read one."""
    for number in range(topics):
        await broker.topics.create(f"topic-{number}")
        leader = broker.view.partition(f"topic-{number}", 0).leader
        for _ in range(2):
            await leader.append(small_batch(), acks=1)
        broker.metrics.topic(f"topic-{number}").produced(100, 1)
    for start in range(0, groups, AT_ONCE):
        some = range(start, min(start + AT_ONCE, groups))
        commits = [OffsetCommit(f"topic-{number % topics}", 0, 1) for number in some]
        await asyncio.gather(
            *(broker.groups.commit(f"group-{number}", [each]) for number, each in zip(some, commits, strict=True))
        )


async def scrape(broker: BrokerNode, name: str) -> None:
    """Print the time of one scrape, and the longest pause of the event loop meanwhile."""
    longest, done = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not done.is_set():
            began = time.perf_counter()
            await asyncio.sleep(STEP_S)
            longest = max(longest, time.perf_counter() - began - STEP_S)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(STEP_S)
    began = time.perf_counter()
    text = await exposition(broker.metrics, by_partition=False)
    took_s = time.perf_counter() - began
    done.set()
    await watching
    lines = text.count(b"\n")
    print(
        f"{name}: {took_s * 1000:.0f} ms, event loop blocked for at most {longest * 1000:.0f} ms, "
        f"{lines:,} lines, {len(text) / 1e6:.1f} MB"
    )


def count_requests(requests: int) -> None:
    """Count what the Kafka server counts for a Produce request with one batch, so many times."""
    metrics = BrokerMetrics()
    channel, traffic = ClientChannel(metrics, EventLimiter(time.monotonic)), RequestTraffic(metrics)
    started = time.perf_counter()  # each request has this time for its quota, too
    for _ in range(requests):
        channel.traffic.bytes_in += 200
        channel.apis |= 1 << PRODUCE_KEY
        metrics.topic("orders").produced(100, 1)
        channel.traffic.bytes_out += 60
        traffic["Produce"].answered(time.perf_counter() - started)


def counting_ns() -> float:
    """Nanoseconds for what the Kafka server counts for one Produce request."""
    began = time.perf_counter_ns()
    count_requests(ROUNDS)
    return (time.perf_counter_ns() - began) / ROUNDS


async def serve_requests() -> None:
    """Serve one Kafka client until it leaves. Prints the port."""
    quiet_unless_configured()
    with tempfile.TemporaryDirectory(prefix="tidemill-metrics-") as folder:
        coordination = await LocalCoordination.open(Path(folder))
        store = MemoryTopics(MemoryLogStore, now_ms)
        broker = make_broker(BrokerEnvironment(coordination, store, now_ms, uuid4), broker_settings.parse({}))
        await broker.start()
        await broker.topics.create("orders")
        server = KafkaServer()
        await server.start(broker, HOST, 0)
        print(server.address[1], flush=True)
        while broker.metrics.connections.get("kafka") != 0:  # a benchmark may wait in steps  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        await server.close()
        await broker.stop()
        await coordination.close()


def produce_frame() -> bytes:
    """A request of Produce with one small record."""
    request = produce_request(
        {TopicPartition("orders", 0): small_batch()}, acks=1, timeout_ms=30_000, transactional_id=None
    )
    header = struct.pack(">hhih", PRODUCE_KEY, PRODUCE_VERSION, 7, -1) + b"\0"
    body = header + b"".join(map(bytes, request.write(PRODUCE_VERSION)))
    return struct.pack(">i", len(body)) + body


def served_instructions(requests: int, source: str | None = None) -> int:
    """The instructions of a process that serves so many Produce requests, one after the other."""

    def use(output: IO[str]) -> None:
        frame = produce_frame()
        with socket.create_connection((HOST, int(output.readline()))) as client, client.makefile("rb") as answers:
            for _ in range(requests):
                client.sendall(frame)
                (size,) = struct.unpack(">i", answers.read(4))
                answers.read(size)

    return instructions("benchmarks.metrics", "--serve-requests", source=source, use=use)


def request_instructions(source: str | None = None) -> float:
    """The instructions of a server for one Produce request."""
    served = served_instructions(SERVED_MANY, source) - served_instructions(SERVED_FEW, source)
    return served / (SERVED_MANY - SERVED_FEW)


def print_instructions() -> None:
    """Print the share of counting in the instructions of a Produce request."""
    few, many = (
        instructions("benchmarks.metrics", "--count-requests", str(each)) for each in (COUNTED_FEW, COUNTED_MANY)
    )
    counting = (many - few) / (COUNTED_MANY - COUNTED_FEW)
    request = request_instructions()
    print(f"counting one Produce request: {counting:,.0f} instructions, {counting / request:.2%} of {request:,.0f}")
    with uncounted_tree() as source:
        bare = request_instructions(source)
    print(f"a server without the lines that count: {bare:,.0f} instructions, counting adds {request / bare - 1:.2%}")


def request_ns() -> float:
    """Nanoseconds of processor time of a broker process for one Produce request."""
    with Broker(process=True, flags={"streams": "memory:", "grpc": "none", "http": "none"}) as broker:
        process = psutil.Process(broker._runner.pid)  # type: ignore[union-attr] # a child process
        with KafkaClient({"bootstrap.servers": broker.bootstrap_servers}) as client:
            place = TopicPartition("orders", 0)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT_S)
            client.produce(place, small_batch())
            began = process.cpu_times()
            for _ in range(REQUESTS):
                client.produce(place, small_batch())
            ended = process.cpu_times()
    used_s: float = ended.user + ended.system - began.user - began.system
    return used_s * 1e9 / REQUESTS


async def run(topics: int, groups: int) -> None:
    """Measure and print everything."""
    with tempfile.TemporaryDirectory(prefix="tidemill-metrics-") as folder:
        coordination = await LocalCoordination.open(Path(folder))
        store = MemoryTopics(MemoryLogStore, now_ms)
        broker = make_broker(BrokerEnvironment(coordination, store, now_ms, uuid4), broker_settings.parse({}))
        await broker.start()
        try:
            await fill(broker, topics, groups)
            await scrape(broker, f"first scrape, {topics:,} topics and {groups:,} groups")
            for _ in range(NEXT):
                await asyncio.sleep(FRESH_S)
                await scrape(broker, "next scrape")
        finally:
            await broker.stop()
            await coordination.close()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="cost of metrics")
    parser.add_argument("--full", action="store_true", help=f"{TOPICS_FULL:,} topics and {GROUPS_FULL:,} groups")
    parser.add_argument("--instructions", action="store_true", help="only compare instructions, with valgrind")
    parser.add_argument("--count-requests", type=int, metavar="N", help="only count N requests")
    parser.add_argument("--serve-requests", action="store_true", help="only serve one client")
    arguments = parser.parse_args()
    if arguments.serve_requests:
        uvloop.run(serve_requests())
        return
    if arguments.count_requests is not None:
        count_requests(arguments.count_requests)
        return
    head("metrics")
    if arguments.instructions:
        print_instructions()
        return
    quiet_unless_configured()
    gc.set_threshold(*COLLECT_AFTER)
    uvloop.run(run(*((TOPICS_FULL, GROUPS_FULL) if arguments.full else (TOPICS, GROUPS))))
    counting, request = counting_ns(), request_ns()
    print(f"counting one Produce request: {counting:.0f} ns, {counting / request:.2%} of its {request / 1000:.0f} us")


if __name__ == "__main__":
    main()
