"""What replicated timelines cost, and how long the loss of a broker stops them.

    python -m benchmarks.timeline_replication [--messages 20000] [--pending 100000] [--full]

Rates: one broker with SQLite and three brokers with three copies, in turn, with the client and the batches of
`timeline_rates`. All brokers share the processors of this machine, which a cluster on three machines does not. Prints
messages per second and the median of the ratios.

Failover: the messages of `--pending` wait for a day (`--full`: a million). Then one broker is killed with SIGKILL. The
clock runs from there until a batch that goes to every partition is accepted by another broker, which includes the
session of the lost broker (`--session-ttl-ms`). At the end every message must be there.

Move: a broker starts with an SQLite file of `--messages` x 5 messages, which move to the three brokers.
"""

import argparse
import asyncio
import time
from pathlib import Path
from statistics import median

import uvloop
from tests.support.cluster_processes import TTL_MS, Brokers, running_brokers

from benchmarks.machine import head
from benchmarks.timeline_rates import BATCH, Rates, tidemill
from tidemill.client.timelines import AsyncTimeline, Message, Timeline
from tidemill.model.errors import TidemillError
from tidemill.testing import Broker
from tidemill.timelines.core.buckets import BUCKETS
from tidemill.timelines.core.message import NewMessage
from tidemill.timelines.core.timeline import Create, MakeReady
from tidemill.timelines.sqlite import open_store

PENDING_FULL = 1_000_000
DAY_S = 86_400
BODY = bytes(100)
VICTIM = 2
ROUNDS = 5


async def pending(brokers: Brokers, messages: int) -> float:
    """Schedule messages for tomorrow; messages per second."""
    started = time.perf_counter()
    async with AsyncTimeline(str(brokers.servers[1]["grpc"]), "pending") as timeline:
        await timeline.create()
        due = time.time() + DAY_S
        for first in range(0, messages, BATCH):
            await timeline.schedule(
                [Message(BODY, due + number) for number in range(first, min(first + BATCH, messages))]
            )
    return messages / (time.perf_counter() - started)


async def failover(brokers: Brokers, messages: int) -> float:
    """Kill a broker; the seconds until all partitions take messages again."""
    async with AsyncTimeline(str(brokers.servers[1]["grpc"]), "pending", timeout_ms=500) as timeline:
        await timeline.create()
        brokers.kill(VICTIM)
        started = time.perf_counter()
        while True:
            batch = [Message(b"probe", time.time() + DAY_S, id=f"probe-{number}") for number in range(64)]
            try:
                await timeline.schedule(batch)
                break
            except TidemillError:
                await asyncio.sleep(0.05)
        took_s = time.perf_counter() - started
    async with AsyncTimeline(str(brokers.servers[3]["grpc"]), "pending") as timeline:
        await timeline.create()
        found = await timeline.count()
    assert found == messages + 64, f"{found} messages instead of {messages + 64}"
    return took_s


async def write_file(path: Path, messages: int) -> None:
    """A file of a broker that had timelines of its own."""
    local = await open_store(path)
    for step in (Create("moving"), MakeReady("moving")):
        await local.govern(step)
    due_ms = int((time.time() + DAY_S) * 1000)
    for first in range(0, messages, BATCH):
        numbers = range(first, min(first + BATCH, messages))
        await local.schedule("moving", [NewMessage(f"m{one}", due_ms + one, BODY, one % BUCKETS) for one in numbers])
    await local.close()


def move(brokers: Brokers, messages: int) -> float:
    """Start a broker again with a file of messages; the messages that move per second, from its start on."""
    brokers.stop(VICTIM)
    uvloop.run(write_file(brokers.home(VICTIM) / "timelines.db", messages))
    started = time.perf_counter()
    brokers.start(VICTIM)
    with Timeline(str(brokers.servers[1]["grpc"]), "moving") as timeline:
        timeline.create()
        while timeline.count() < messages:
            time.sleep(0.1)
    return messages / (time.perf_counter() - started)


def show(name: str, rates: Rates) -> None:
    print(f"{name:<34} {rates.schedule:>10,.0f}/s scheduled {rates.work:>10,.0f}/s leased and completed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--full", action="store_true")
    asked = parser.parse_args()
    head("timeline_replication")
    waiting = PENDING_FULL if asked.full else asked.pending
    with running_brokers(3, grpc="127.0.0.1:0", timelines="replicated:") as brokers:
        with Broker(process=True) as broker:
            compare(broker.grpc, str(brokers.servers[1]["grpc"]), asked.messages)
        count = asked.messages * 5
        print(f"a file of {count:,} messages moves at {move(brokers, count):,.0f}/s", flush=True)
        rate = uvloop.run(pending(brokers, waiting))
        print(f"{waiting:,} pending, scheduled at {rate:,.0f}/s", flush=True)
        took_s = uvloop.run(failover(brokers, waiting))
    print(f"failover with {waiting:,} pending: {took_s:.1f} s (sessions last {TTL_MS / 1000:g} s), none lost")


def compare(one: str, three: str, messages: int) -> None:
    """Both in turn, several times: the load of the machine changes from minute to minute."""
    rounds = []
    for _ in range(ROUNDS):
        rounds.append((uvloop.run(tidemill(one, messages)), uvloop.run(tidemill(three, messages))))
        show("one broker, SQLite", rounds[-1][0])
        show("three brokers, three copies", rounds[-1][1])
    schedule = median(copies.schedule / alone.schedule for alone, copies in rounds)
    work = median(copies.work / alone.work for alone, copies in rounds)
    print(f"median ratio: {schedule:.2f}x scheduled, {work:.2f}x leased and completed", flush=True)


if __name__ == "__main__":
    main()
