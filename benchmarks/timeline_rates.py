"""How many messages per second: scheduled, and leased and completed; beside beanstalkd in the same run.

    python -m benchmarks.timeline_rates [--messages 20000] [--postgres URL] [--full]

Both are real servers in processes of their own, with durable storage, driven by one client in this process with
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

from benchmarks.machine import head
from tidemill.client.timeline import AsyncLease, AsyncTimeline, Message
from tidemill.testing import Broker

BATCH = 1_000
BODY = bytes(100)
MESSAGES_FULL = 100_000
DURABLE_LESS = 10
"""beanstalkd waits for the disk with every job: a tenth of the messages is enough to see its rate."""
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


def show(name: str, rates: Rates, base: Rates | None) -> None:
    ratio = f"  ratio {base.schedule / rates.schedule:.2f}, {base.work / rates.work:.2f}" if base else ""
    print(f"{name:28} schedule {rates.schedule:9,.0f}/s  lease+complete {rates.work:9,.0f}/s{ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--postgres", default="", help="URL of a PostgreSQL to measure too.")
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    messages = options.messages or (MESSAGES_FULL if options.full else 20_000)
    head("timeline_rates")
    with Broker(process=True) as broker:
        ours = uvloop.run(tidemill(broker.grpc, messages))
    show("tidemill, SQLite", ours, None)
    if options.postgres:
        with Broker(process=True, flags={"timelines": options.postgres}) as broker:
            show("tidemill, PostgreSQL", uvloop.run(tidemill(broker.grpc, messages)), None)
    if shutil.which("beanstalkd") is None:
        print("beanstalkd is not installed: no ratio (Debian package 'beanstalkd')")
        return
    with beanstalkd("-f", "0") as port:
        show("beanstalkd -f 0 (durable)", beanstalk(port, max(BATCH, messages // DURABLE_LESS)), ours)
    with beanstalkd() as port:
        show("beanstalkd (default)", beanstalk(port, messages), ours)


if __name__ == "__main__":
    main()
