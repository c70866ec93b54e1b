"""Timelines when things break: the broker is killed, a worker is stopped past its lease, PostgreSQL crashes.

The rules that must hold through all of it: no message is lost, none is early, none is leased to two at a time, and one
that was completed never comes again.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from tests.postgres import running_postgres

from tidemill.client.timeline import AsyncLease, AsyncTimeline, Message
from tidemill.model.timeline_errors import StoreUnavailable, TimelineDeleting, TimelineError
from tidemill.testing import Broker

MESSAGES = 2_000
SPREAD_S = 3.0
LEASE_MS = 2_000
LIMIT_S = 90


class Record:
    """What a worker saw."""

    def __init__(self) -> None:
        self.delivered: dict[str, int] = {}
        self.leased_until: dict[str, float] = {}
        self.completed: set[str] = set()
        self.violations: list[str] = []

    def got(self, lease: AsyncLease) -> None:
        if time.time() < lease.due.timestamp():
            self.violations.append(f"{lease.id} was early")
        if lease.id in self.completed:
            self.violations.append(f"{lease.id} came after it was completed")
        if time.time() < self.leased_until.get(lease.id, 0):
            self.violations.append(f"{lease.id} has two live leases")
        self.leased_until[lease.id] = lease.expires.timestamp()
        self.delivered[lease.id] = self.delivered.get(lease.id, 0) + 1


async def _complete(lease: AsyncLease, record: Record) -> None:
    """Complete; an unknown outcome is no completion, the message may come again."""
    try:
        await lease.complete()
    except (TimelineError, TimeoutError):
        return
    record.completed.add(lease.id)


async def _work(timeline: AsyncTimeline, consumer: str, record: Record, lease_ms: int = LEASE_MS) -> None:
    tasks = set()
    async for lease in timeline.work(consumer_id=consumer, max_in_flight=50, lease_ms=lease_ms):
        record.got(lease)
        tasks.add(asyncio.create_task(_complete(lease, record)))


async def _run(address: str, trouble: Callable[[], Awaitable[None]]) -> Record:
    """Schedule, work with two workers through the trouble, and go on until the timeline is empty."""
    record = Record()
    async with AsyncTimeline(address, "line", timeout_ms=LIMIT_S * 1_000) as timeline:
        await timeline.create(lease_ms=LEASE_MS, window_ms=1_000)
        start = time.time() + 0.5
        names = [f"m{number}" for number in range(MESSAGES)]
        await timeline.schedule(
            [Message(b"x", start + SPREAD_S * number / MESSAGES, id=name) for number, name in enumerate(names)]
        )
        workers = [asyncio.create_task(_work(timeline, name, record)) for name in ("w1", "w2")]
        await asyncio.sleep(max(0, start + SPREAD_S / 3 - time.time()))
        await trouble()
        await _emptied(timeline)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert record.violations == []
        assert await timeline.count() == 0
        assert set(record.delivered) == set(names)
    return record


async def _emptied(timeline: AsyncTimeline) -> None:
    """Wait until every message is completed, or the limit has passed."""
    ends = time.monotonic() + LIMIT_S
    left = MESSAGES
    while left and time.monotonic() < ends:
        await asyncio.sleep(0.1)
        with suppress(StoreUnavailable):
            left = await timeline.count()


def test_a_killed_broker_loses_nothing() -> None:
    with Broker(process=True) as broker:

        async def kill() -> None:
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.restart)

        record = asyncio.run(_run(broker.grpc, kill))
        print(f"deliveries {sum(record.delivered.values())} of {MESSAGES} messages")


def test_postgres_crashes_and_nothing_is_lost() -> None:
    with running_postgres(durable=True) as server, Broker(flags={"timelines": server.new_database()}) as broker:

        async def crash() -> None:
            await asyncio.to_thread(server.stop, "immediate")
            await asyncio.sleep(0.5)
            await asyncio.to_thread(server.start)

        record = asyncio.run(_run(broker.grpc, crash))
        print(f"deliveries {sum(record.delivered.values())} of {MESSAGES} messages")


def test_two_brokers_share_a_postgres_store() -> None:
    with running_postgres() as server:
        url = server.new_database()
        with Broker(flags={"timelines": url}) as first, Broker(flags={"timelines": url}) as second:
            asyncio.run(_shared(first.grpc, second.grpc))


async def _shared(first: str, second: str) -> None:
    async with AsyncTimeline(first, "line") as here, AsyncTimeline(second, "line") as there:
        await here.create()
        ends = time.monotonic() + 30
        while "line" not in {one.name for one in await there.timelines()}:
            assert time.monotonic() < ends
            await asyncio.sleep(0.1)
        record = Record()
        workers = [
            asyncio.create_task(_work(one, name, record, lease_ms=10 * LIMIT_S * 1_000))
            for one, name in ((here, "w1"), (there, "w2"))
        ]
        start = time.time() + 0.3
        await here.schedule([Message(b"x", start + number / 500, id=f"m{number}") for number in range(300)])
        await _emptied(here)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert record.violations == []
        assert len(record.delivered) == 300
        assert set(record.delivered.values()) == {1}


STOPPED_WORKER = """
import sys
from tidemill import Timeline
timeline = Timeline(sys.argv[1], topic="line")
for lease in timeline.work(consumer_id="stopped", lease_ms=1000):
    print("holds", flush=True)
    sys.stdin.readline()
    try:
        lease.complete()
        print("completed", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
    break
"""


def test_a_worker_that_was_stopped_past_its_lease_is_refused(tmp_path: Path) -> None:
    with Broker() as broker:
        process = subprocess.Popen(
            [sys.executable, "-c", STOPPED_WORKER, broker.grpc],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        try:
            answer = asyncio.run(_outlast(broker.grpc, process))
        finally:
            process.kill()
            process.communicate()
    assert answer in {"StaleLease", "UnknownMessage"}


async def _outlast(address: str, process: "subprocess.Popen[str]") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    async with AsyncTimeline(address, "line") as timeline:
        await timeline.create(window_ms=500)
        await timeline.schedule([Message(b"x", time.time(), id="m")])
        assert (await asyncio.to_thread(process.stdout.readline)).strip() == "holds"
        os.kill(process.pid, signal.SIGSTOP)
        async for lease in timeline.work(consumer_id="other", lease_ms=60_000):
            assert lease.id == "m"
            assert lease.attempts >= 2
            break
        os.kill(process.pid, signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.flush()
        return (await asyncio.to_thread(process.stdout.readline)).strip()


def test_a_deletion_goes_on_after_a_kill_and_frees_the_name() -> None:
    async def run(broker: Broker) -> None:
        async with AsyncTimeline(broker.grpc, "big") as timeline:
            await timeline.create()
            await timeline.schedule([Message(b"x", time.time() + 3_600) for _ in range(10_000)])
            await timeline.delete()
            broker.kill()
        broker.restart()
        async with AsyncTimeline(broker.grpc, "big") as timeline:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    try:
                        await timeline.create()
                        break
                    except TimelineDeleting:
                        await asyncio.sleep(0.05)
            assert await timeline.count() == 0

    with Broker(process=True) as broker:
        asyncio.run(run(broker))
