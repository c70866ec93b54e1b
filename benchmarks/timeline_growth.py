"""What a message costs when a timeline is short and when it is long: it should be the same.

    python benchmarks/timeline_growth.py [--huge] [--postgres URL] [--directory DIR]

For 10^4 and 10^6 (with --huge also 10^7) pending messages the same work is done: batches of new messages at random due
times are scheduled, and as many are found, leased and completed. Prints microseconds per message and the ratio to the
shortest timeline.
"""

import argparse
import asyncio
import platform
import random
import resource
import shlex
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import NamedTuple, TypeVar

from tidemill.timelines.core.lease import Claim, Complete, Outcome
from tidemill.timelines.core.message import NewMessage, Selection
from tidemill.timelines.core.timeline import Create, Delete, MakeReady, Purge
from tidemill.timelines.interface import TimelineStore

BATCH = 1_000
MEASURED = 20_000
HORIZON_MS = 30 * 24 * 3_600_000
BODY = bytes(100)
START_MS = 1_700_000_000_000

Result = TypeVar("Result")


class Cost(NamedTuple):
    """Microseconds per message."""

    pending: int
    schedule: float
    find: float
    lease: float
    complete: float

    @property
    def whole(self) -> float:
        return self.schedule + self.find + self.lease + self.complete


class Filler:
    """Draws messages with random due times in the coming month; ids grow with time, as the doors draw them."""

    def __init__(self) -> None:
        self._draw = random.Random(1)
        self._next = 0

    def batch(self, now_ms: int, count: int) -> list[NewMessage]:
        first = self._next
        self._next += count
        draw = self._draw.randrange
        return [
            NewMessage(f"{now_ms:012x}{number:020x}", now_ms + draw(HORIZON_MS), BODY, draw(65_536))
            for number in range(first, first + count)
        ]


class Timer:
    """Adds up the time of one kind of call."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def of(self, call: Awaitable[Result]) -> Result:
        begun = time.perf_counter()
        result = await call
        self.seconds += time.perf_counter() - begun
        return result


async def measure(store: TimelineStore, pending: int) -> Cost:
    line = f"growth-{pending}"
    await store.govern(Create(line))
    await store.govern(MakeReady(line))
    filler = Filler()
    for _ in range(pending // BATCH):
        await store.schedule(line, filler.batch(START_MS, BATCH))
    timers = [Timer() for _ in range(4)]
    for _ in range(MEASURED // BATCH):
        await one_round(store, line, filler, timers)
    await store.govern(Delete(line))
    while await store.govern(Purge(line)) is not None:
        pass
    return Cost(pending, *(timer.seconds / MEASURED * 1e6 for timer in timers))


async def one_round(store: TimelineStore, line: str, filler: Filler, timers: list[Timer]) -> None:
    """A thousand come, and the thousand that are next on the timeline are leased and completed."""
    schedule, find, lease, complete = timers
    await schedule.of(store.schedule(line, filler.batch(START_MS, BATCH)))
    due = await find.of(store.find(line, Selection(), now_ms=START_MS, limit=BATCH, bodies=True))
    now_ms = due[-1].due_ms
    claims = [Claim(one.seq, one.version, "worker", now_ms + 30_000) for one in due]
    leases = await lease.of(store.acquire(line, claims, now_ms=now_ms))
    commands = [Complete(one.seq, one.token) for one in leases if one is not None]
    outcomes = await complete.of(store.settle(line, commands, now_ms=now_ms))
    assert outcomes == [Outcome.DONE] * BATCH


async def run(arguments: argparse.Namespace) -> None:
    sizes = [10**4, 10**6, *([10**7] if arguments.huge else [])]
    with tempfile.TemporaryDirectory(dir=arguments.directory) as home:
        print(
            f"{'pending':>10}  {'schedule':>8}  {'find':>8}  {'lease':>8}  {'complete':>8}  {'whole':>8}  us per message"
        )
        first: Cost | None = None
        for size in sizes:
            store = await opened(arguments, Path(home) / f"{size}.db")
            cost = await measure(store, size)
            await store.close()
            first = first or cost
            numbers = "  ".join(f"{value:8.1f}" for value in (*cost[1:], cost.whole))
            print(f"{size:>10,}  {numbers}  ratio {cost.whole / first.whole:.2f}", flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


async def opened(arguments: argparse.Namespace, path: Path) -> TimelineStore:
    if arguments.postgres:
        from tidemill.timelines.postgres import open_store as open_postgres

        return await open_postgres(arguments.postgres)
    from tidemill.timelines.sqlite import open_store as open_sqlite

    return await open_sqlite(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost per message on short and long timelines.")
    parser.add_argument("--huge", action="store_true", help="also with ten million pending messages (some minutes)")
    parser.add_argument("--postgres", metavar="URL", help="measure PostgreSQL instead of SQLite")
    parser.add_argument("--directory", default=".", help="where the SQLite files are written: a real disk")
    arguments = parser.parse_args()
    print(f"machine: {platform.platform()}, {platform.machine()}, Python {platform.python_version()}")
    print(f"command: {shlex.join(['python', *sys.argv])}")
    asyncio.run(run(arguments))


if __name__ == "__main__":
    main()
