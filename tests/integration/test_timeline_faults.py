"""Failures of timelines: the broker is killed, a worker is stopped past its lease, PostgreSQL crashes.

The rules that must hold through all of it are in `timeline_load.py`; what a clock does that is set is in
`test_timeline_jumps.py`.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.timeline_load import LIMIT_S, MESSAGES, Record, emptied, run, work
from tests.support.postgres import running_postgres
from tests.support.waiting import eventually_async

from tidemill.client.timelines import AsyncTimeline, Message
from tidemill.model.timeline_errors import TimelineDeleting
from tidemill.testing import Broker


async def test_a_killed_broker_loses_nothing() -> None:
    with Broker(process=True) as broker:

        async def kill() -> None:
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.restart)

        record = await run(broker.grpc, kill)
        print(f"deliveries {sum(record.delivered.values())} of {MESSAGES} messages")


async def test_postgres_crashes_and_nothing_is_lost() -> None:
    with running_postgres(durable=True) as server, Broker(flags={"timelines": server.new_database()}) as broker:

        async def crash() -> None:
            await asyncio.to_thread(server.stop, "immediate")
            await asyncio.sleep(0.5)
            await asyncio.to_thread(server.start)

        record = await run(broker.grpc, crash)
        print(f"deliveries {sum(record.delivered.values())} of {MESSAGES} messages")


async def test_two_brokers_share_a_postgres_store() -> None:
    with running_postgres() as server:
        url = server.new_database()
        with Broker(flags={"timelines": url}) as first, Broker(flags={"timelines": url}) as second:
            await _shared(first.grpc, second.grpc)


async def _shared(first: str, second: str) -> None:
    async with AsyncTimeline(first, "line") as here, AsyncTimeline(second, "line") as there:
        await here.create()

        async def is_known() -> bool:
            return "line" in {one.name for one in await there.timelines()}

        await eventually_async(is_known)
        record = Record()
        workers = [
            asyncio.create_task(work(one, name, record, lease_ms=10 * LIMIT_S * 1_000))
            for one, name in ((here, "w1"), (there, "w2"))
        ]
        start = time.time() + 0.3
        await here.schedule([Message(b"x", start + number / 500, id=f"m{number}") for number in range(300)])
        await emptied(here)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert record.violations == []
        assert len(record.delivered) == 300
        assert set(record.delivered.values()) == {1}


STOPPED_WORKER = """
import sys
from tidemill import Timeline
timeline = Timeline(sys.argv[1], name="line")
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


async def test_a_worker_that_was_stopped_past_its_lease_is_refused(tmp_path: Path) -> None:
    with Broker() as broker:
        process = subprocess.Popen(  # noqa: ASYNC220 -- nothing else runs in this loop
            [sys.executable, "-c", STOPPED_WORKER, broker.grpc],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        try:
            answer = await _outlast(broker.grpc, process)
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


async def test_a_deletion_continues_after_a_kill_and_frees_the_name() -> None:
    async def start_over(broker: Broker) -> None:
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
        await start_over(broker)
