"""Messages per second, scheduled and leased+completed, compared with beanstalkd in the same run.

    python -m benchmarks.timeline_rates [--messages 20000] [--full]

Both are real servers in separate processes, with durable storage, driven by one client in this process with
batches of 1,000. beanstalkd runs twice: with `-f 0` (every job is on disk when it is acknowledged, as in Tidemill) and
with its default (on disk within 50 ms). Prints messages per second and the ratio of Tidemill to each.
"""

import argparse
import asyncio
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import uvloop
from tests.support.postgres import running_postgres

from benchmarks.machine import head
from tidemill.client.timelines import AsyncLease, AsyncTimeline, Message
from tidemill.testing import Broker

BATCH = 1_000
BODY = bytes(100)
MESSAGES_FULL = 100_000
DURABLE_LESS = 10
"""beanstalkd waits for the disk with every job, so a tenth of the messages is enough to measure its rate."""
START_TIMEOUT_S = 10.0


class Rates(NamedTuple):
    """Messages per second."""

    schedule: float
    work: float


async def tidemill(address: str, messages: int) -> Rates:
    """Schedule in batches for now, then lease and complete everything with one consumer."""
    async with AsyncTimeline(address, "rates") as timeline:
        await timeline.create()
        started = time.perf_counter()
        due = time.time() - 1
        for _ in range(0, messages, BATCH):
            await timeline.schedule([Message(BODY, due) for _ in range(BATCH)])
        scheduled = time.perf_counter()
        tasks: set[asyncio.Task[None]] = set()
        done = 0
        async for lease in timeline.work(max_in_flight=5 * BATCH, idle_ms=30_000):
            task = asyncio.create_task(complete(lease))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            done += 1
            if done == messages:
                break
        await asyncio.gather(*tasks)
        ended = time.perf_counter()
    return Rates(messages / (scheduled - started), messages / (ended - scheduled))


async def complete(lease: AsyncLease) -> None:
    await lease.complete()


@contextmanager
def beanstalkd(*options: str) -> Iterator[int]:
    """A beanstalkd with a log on disk; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        program = shutil.which("beanstalkd") or ""
        server = subprocess.Popen([program, "-l", "127.0.0.1", "-p", str(port), "-b", folder, *options])
        try:
            yield port
        finally:
            server.terminate()
            server.wait()


class Beanstalk:
    """The three commands of beanstalkd that are needed, each in batches: all sent, then all answers read."""

    def __init__(self, port: int) -> None:
        ends = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", port))
                break
            except ConnectionRefusedError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.05)
        self._answers = self._socket.makefile("rb")

    def put(self, count: int) -> None:
        self._socket.sendall(b"put 0 0 60 %d\r\n%b\r\n" % (len(BODY), BODY) * count)
        for _ in range(count):
            assert self._answers.readline().startswith(b"INSERTED")

    def reserve(self, count: int) -> list[bytes]:
        self._socket.sendall(b"reserve\r\n" * count)
        ids = []
        for _ in range(count):
            _, job, size = self._answers.readline().split()
            self._answers.read(int(size) + 2)
            ids.append(job)
        return ids

    def delete(self, ids: list[bytes]) -> None:
        self._socket.sendall(b"".join(b"delete %b\r\n" % job for job in ids))
        for _ in ids:
            assert self._answers.readline() == b"DELETED\r\n"


def beanstalk(port: int, messages: int) -> Rates:
    """The same work on beanstalkd."""
    client = Beanstalk(port)
    started = time.perf_counter()
    for _ in range(0, messages, BATCH):
        client.put(BATCH)
    scheduled = time.perf_counter()
    for _ in range(0, messages, BATCH):
        client.delete(client.reserve(BATCH))
    ended = time.perf_counter()
    return Rates(messages / (scheduled - started), messages / (ended - scheduled))


async def both(messages: int) -> dict[str, Rates]:
    """Tidemill with each of its stores; PostgreSQL is started for the run, with its default flushing."""
    rates: dict[str, Rates] = {}
    with Broker(process=True) as broker:
        rates["SQLite"] = await tidemill(broker.grpc, messages)
    show("tidemill, SQLite", rates["SQLite"])
    with (
        running_postgres(durable=True) as server,
        Broker(process=True, flags={"timelines": server.new_database()}) as broker,
    ):
        rates["PostgreSQL"] = await tidemill(broker.grpc, messages)
    show("tidemill, PostgreSQL", rates["PostgreSQL"])
    return rates


def show(name: str, rates: Rates) -> None:
    print(f"{name:28} schedule {rates.schedule:9,.0f}/s  lease+complete {rates.work:9,.0f}/s", flush=True)


def compare(name: str, theirs: Rates, ours: dict[str, Rates]) -> None:
    """Their rates, and ours as a ratio to them."""
    show(name, theirs)
    for store, rates in ours.items():
        ratios = f"schedule {rates.schedule / theirs.schedule:.2f}x, lease+complete {rates.work / theirs.work:.2f}x"
        print(f"  tidemill, {store}, to it: {ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    messages = options.messages or (MESSAGES_FULL if options.full else 20_000)
    head("timeline_rates")
    ours = uvloop.run(both(messages))
    if shutil.which("beanstalkd") is None:
        print("beanstalkd is not installed: no ratio (Debian package 'beanstalkd')")
        return
    with beanstalkd("-f", "0") as port:
        compare("beanstalkd -f 0 (durable)", beanstalk(port, max(BATCH, messages // DURABLE_LESS)), ours)
    with beanstalkd() as port:
        compare("beanstalkd (default)", beanstalk(port, messages), ours)


if __name__ == "__main__":
    main()
