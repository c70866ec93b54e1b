"""The cost of a message in the store alone, on short and long timelines; `timeline_growth` measures the whole broker.

    python -m benchmarks.timeline_store_growth [--full] [--rounds 30] [--postgres [URL]] [--directory DIR]

With 10^4 and 10^6 (with --full also 10^7) messages pending in the coming month, the same work is done: messages are
scheduled, found, leased and completed, a thousand at a time. There are two kinds of traffic:

    near   the new messages are due in the next ten seconds, before the pending ones
    far    the new messages are due at any time of the month, and the next ones of the timeline are completed: every
           message is on another page of the file, which is the worst case for a store with pages

Short and long timelines take turns, so that other programs affect all of them alike. Prints microseconds
per message and the ratio to the shortest timeline.

With --postgres and no URL a server is started, with the memory and log size that suit this machine (SERVER). The vacuum
and the checkpoint after filling run before the measurement. The first change of a page after a checkpoint logs the
whole page. A short run on a long timeline has only such changes, and costs more than a long one. Checkpoints run every
five minutes. The processor time is that of this program and of
all processes of that server.

Work that a store does later, for many messages at once, is measured separately:

- PostgreSQL sorts new messages when there are many. All new ones are sorted. The processor time, including the vacuum
  and the checkpoint that follow, is divided by their number and added to the cost of a far message.
- SQLite deletes the rows of completed messages later. As many as a sweep waits for, anywhere in the file, are
  cancelled, and the processor time of the sweep is divided by their number.
- SQLite merges the positions of new messages into the main index later. The blocks that exist by then are merged, and
  the processor time is divided in the same way.
"""

import argparse
import asyncio
import os
import random
import resource
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import psutil

from benchmarks.machine import head
from tidemill.timelines.core.lease import Cancel, Claim, CommandOutcome, Complete
from tidemill.timelines.core.message import NewMessage, Selection
from tidemill.timelines.core.timeline import Create, Delete, MakeReady, Purge
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.postgres import PostgresStore, sort
from tidemill.timelines.sqlite import merge, sweep
from tidemill.timelines.sqlite.tables import BLOCK

if TYPE_CHECKING:
    from tests.support.postgres import Postgres

BATCH = 1_000
FILL_BATCH = 10_000
REACH_MS = {"near": 10_000, "far": 30 * 24 * 3_600_000}
BODY = bytes(100)
START_MS = int(time.time() * 1000)
"""Servers compare due times with their clocks."""
SWEEP_MIN = 30_000
SWEEP_MAX = 3_000_000
SWEEP_SHARE = 30
"""Percent of the pending messages; a sweep starts at about this many."""

NEVER = 10**9
SORTED_MIN = sort.FRESH_MIN
OWN = "a server of our own"
MEMORY_MB = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000
SERVER = {"shared_buffers": f"{MEMORY_MB // 4}MB", "max_wal_size": "8GB", "wal_compression": "lz4"}
"""A quarter of the machine's memory, as PostgreSQL's manual advises, and a log with compressed pages."""

Result = TypeVar("Result")


class Cost(NamedTuple):
    """Microseconds per message."""

    schedule: float
    find: float
    lease: float
    complete: float
    processor: float

    @property
    def whole(self) -> float:
        return self.schedule + self.find + self.lease + self.complete


class Filler:
    """Draws messages with random due times; ids grow with time, as the servers assign them."""

    def __init__(self) -> None:
        self._draw = random.Random(1)
        self._next = 0

    def batch(self, count: int, start_ms: int, end_ms: int) -> list[NewMessage]:
        """Messages that are due from `start_ms` on and before `end_ms`."""
        first = self._next
        self._next += count
        draw = self._draw.randrange
        return [
            NewMessage(f"{START_MS:012x}{number:020x}", draw(start_ms, end_ms), BODY, draw(65_536))
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


def asked(path: Path, question: str) -> int:
    """The number that a query on a file returns."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(question).fetchone()[0])


def rows_gone(path: Path) -> int:
    """The number of completed messages whose rows may still exist."""
    return asked(path, "SELECT count(*) FROM gone")


async def rows_fresh(url: str) -> int:
    """The number of messages that PostgreSQL has not sorted yet."""
    import asyncpg

    connection = await asyncpg.connect(url)
    count: int = await connection.fetchval("SELECT count(*) FROM tidemill.fresh")
    await connection.close()
    return count


class Line:
    """A timeline of a given length, and the cost of its traffic so far."""

    def __init__(self, store: TimelineStore, pending: int, processor: Callable[[], float]) -> None:
        self.pending = pending
        self.store = store
        self._rounds = dict.fromkeys(REACH_MS, 0)
        self._processor = processor
        self._spent = dict.fromkeys(REACH_MS, 0.0)
        self._name = f"growth-{pending}"
        self._now_ms = START_MS
        self._filler = Filler()
        self._timers = {kind: [Timer() for _ in range(4)] for kind in REACH_MS}

    async def fill(self) -> None:
        """Fill the timeline to its length."""
        await self.store.govern(Create(self._name))
        await self.store.govern(MakeReady(self._name))
        await self.store.catalogue()  # passes the time to the store
        for _ in range(self.pending // FILL_BATCH):
            await self._more()
        if isinstance(self.store, PostgresStore):
            await self.store.sorter.finish()

    async def round(self, kind: str) -> None:
        """Run a thousand messages of one kind."""
        self._rounds[kind] += 1
        batch = self._filler.batch(BATCH, START_MS, START_MS + REACH_MS[kind])
        before = self._processor()
        self._now_ms = await one_round(self.store, self._name, batch, self._now_ms, self._timers[kind])
        self._spent[kind] += self._processor() - before

    def cost(self, kind: str) -> Cost:
        """The cost of a message."""
        seconds = [*(timer.seconds for timer in self._timers[kind]), self._spent[kind]]
        return Cost(*(one / (self._rounds[kind] * BATCH) * 1e6 for one in seconds))

    async def sweep(self, path: Path) -> tuple[int, float]:
        """How many messages were swept, and the processor time of each in microseconds."""
        count = min(SWEEP_MAX, max(SWEEP_MIN, SWEEP_SHARE * self.pending // 100))
        more = [one.id for _ in range(count // FILL_BATCH) for one in await self._more()]
        known = [f"{START_MS:012x}{number:020x}" for number in range(self.pending)]
        gone = random.Random(2).sample(known + more, len(more))
        limits = sweep.GONE_MIN, sweep.GONE_MAX
        sweep.GONE_MIN = sweep.GONE_MAX = NEVER  # not before all are completed
        for first in range(0, len(gone), FILL_BATCH):
            commands = [Cancel(one) for one in gone[first : first + FILL_BATCH]]
            await self.store.settle(self._name, commands, now_ms=START_MS)
        sweep.GONE_MIN, sweep.GONE_MAX = limits[0], len(gone) // 2
        begun = time.process_time()
        while rows_gone(path) > len(gone) // 2:
            await asyncio.gather(*(self.store.govern(MakeReady(self._name)) for _ in range(50)))
        sweep.GONE_MAX = limits[1]
        return len(gone), (time.process_time() - begun) / len(gone) * 1e6

    async def merge(self, path: Path) -> tuple[int, float]:
        """How many positions were merged, and the processor time of each in microseconds."""
        limit, merge.FRESH_PER_PAGE = merge.FRESH_PER_PAGE, BLOCK  # not before all are scheduled
        for _ in range(1 + BLOCK // FILL_BATCH):
            await self._more()
        merge.FRESH_PER_PAGE = 0
        fresh = asked(path, "SELECT count(*) FROM fresh")
        begun = time.process_time()
        while asked(path, "SELECT max(block) > min(block) FROM fresh"):
            await asyncio.gather(*(self.store.govern(MakeReady(self._name)) for _ in range(50)))
        spent = time.process_time() - begun
        merge.FRESH_PER_PAGE = limit
        count = fresh - asked(path, "SELECT count(*) FROM fresh")
        return count, spent / count * 1e6

    async def _more(self) -> list[NewMessage]:
        batch = self._filler.batch(FILL_BATCH, START_MS + REACH_MS["near"], START_MS + REACH_MS["far"])
        await self.store.schedule(self._name, batch)
        return batch

    async def remove(self) -> None:
        """Delete the timeline."""
        await self.store.govern(Delete(self._name))
        while await self.store.govern(Purge(self._name)) is not None:
            pass
        await self.store.close()


async def one_round(
    store: TimelineStore, line: str, messages: list[NewMessage], now_ms: int, timers: list[Timer]
) -> int:
    """Schedule a thousand messages, lease and complete the next thousand; returns the time afterwards."""
    schedule, find, lease, complete = timers
    await schedule.of(store.schedule(line, messages))
    due = await find.of(store.find(line, Selection(), now_ms=now_ms, limit=BATCH, bodies=True))
    now_ms = max(now_ms, due[-1].due_ms)
    claims = [Claim(one.seq, one.version, "worker", now_ms + 30_000, one.due_ms) for one in due]
    leases = await lease.of(store.acquire(line, claims, now_ms=now_ms))
    commands = [Complete(one.seq, one.token) for one in leases if one is not None]
    outcomes = await complete.of(store.settle(line, commands, now_ms=now_ms))
    assert outcomes == [CommandOutcome.DONE] * BATCH
    return now_ms


async def run(arguments: argparse.Namespace) -> None:
    sizes = [10**4, 10**6, *([10**7] if arguments.full else [])]
    processor: Callable[[], float] = time.process_time
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.directory))
        own = arguments.postgres == OWN
        if own:
            server = started(stack)
            arguments.postgres = server.new_database()
            processor = partial(processor_of, psutil.Process(server.pid))
        lines = [Line(await opened(arguments, Path(home) / f"{size}.db"), size, processor) for size in sizes]
        for line in lines:
            begun = time.perf_counter()
            await line.fill()
            print(f"{line.pending:,} messages scheduled in {time.perf_counter() - begun:.0f} s", flush=True)
        if own:
            await tidied(arguments.postgres)
        sort.FRESH_MIN = sort.FRESH_MAX = NEVER
        for kind in REACH_MS:
            for _ in range(arguments.rounds):
                for line in lines:
                    await line.round(kind)
        report(lines)
        if own and sum(sizes) > SORTED_MIN:
            await report_sorting(lines, arguments.postgres, processor)
        for line in lines:
            if not arguments.postgres:
                count, cost = await line.merge(Path(home) / f"{line.pending}.db")
                print(f"{line.pending:>10,}  merge of {count:,}: {cost:.1f} us of processor each", flush=True)
                count, cost = await line.sweep(Path(home) / f"{line.pending}.db")
                print(f"{line.pending:>10,}  sweep of {count:,}: {cost:.1f} us of processor each", flush=True)
            await line.remove()
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def started(stack: ExitStack) -> "Postgres":
    """A server for this run."""
    from tests.support.postgres import running_postgres

    print("server:", ", ".join(f"{name}={value}" for name, value in SERVER.items()), flush=True)
    return stack.enter_context(running_postgres(durable=True, **SERVER))


def processor_of(server: psutil.Process) -> float:
    """The processor time of this program and of a server with all its processes."""
    seconds = time.process_time() + float(sum(server.cpu_times()[:4]))
    for child in server.children():
        with suppress(psutil.NoSuchProcess):
            seconds += float(sum(child.cpu_times()[:2]))
    return seconds


async def tidied(url: str) -> None:
    """Run the maintenance now that the server would run by itself in the next minutes, after this many new rows."""
    import asyncpg

    connection = await asyncpg.connect(url)
    for statement in ("VACUUM (ANALYZE)", "CHECKPOINT"):
        await connection.execute(statement)
    await connection.close()


def report(lines: list[Line]) -> None:
    columns = "  ".join(f"{name:>9}" for name in (*Cost._fields, "whole"))
    print(f"{'pending':>10}  kind  {columns}  us per message")
    for kind in REACH_MS:
        base = lines[0].cost(kind)
        for line in lines:
            cost = line.cost(kind)
            numbers = "  ".join(f"{value:9.1f}" for value in (*cost, cost.whole))
            ratios = f"{cost.whole / base.whole:.2f}, of the processor {cost.processor / base.processor:.2f}"
            print(f"{line.pending:>10,}  {kind:4}  {numbers}  ratio by the clock {ratios}", flush=True)


async def report_sorting(lines: list[Line], url: str, processor: Callable[[], float]) -> None:
    """The cost of sorting the new messages, and of a far message on a long timeline including it."""
    store = lines[-1].store
    assert isinstance(store, PostgresStore)
    await tidied(url)  # or the server would clean up after the rounds meanwhile
    fresh, begun = await rows_fresh(url), processor()
    sort.FRESH_MIN, sort.FRESH_PER_PAGE = 1, 0
    store.sorter.scheduled(NEVER)
    await store.sorter.finish()
    await tidied(url)
    count = fresh - await rows_fresh(url)
    each = (processor() - begun) / count * 1e6
    print(f"sorting of {count:,} messages: {each:.1f} us of processor each; a far message with it:")
    base = lines[0].cost("far").processor
    for line in lines[1:]:
        cost = line.cost("far").processor + each
        print(f"{line.pending:>10,}  {cost:.1f} us of processor, ratio {cost / base:.2f}", flush=True)


async def opened(arguments: argparse.Namespace, path: Path) -> TimelineStore:
    if arguments.postgres:
        from tidemill.timelines.postgres import open_store as open_postgres

        return await open_postgres(arguments.postgres)
    from tidemill.timelines.sqlite import open_store as open_sqlite

    return await open_sqlite(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost per message on short and long timelines.")
    parser.add_argument("--full", action="store_true", help="also with ten million pending messages (some minutes)")
    parser.add_argument("--rounds", type=int, default=30, help="thousands of messages of each kind")
    parser.add_argument("--postgres", metavar="URL", nargs="?", const=OWN, help="measure PostgreSQL instead of SQLite")
    parser.add_argument("--directory", default=".", help="where the SQLite files are written: a real disk")
    arguments = parser.parse_args()
    head("timeline_store_growth")
    asyncio.run(run(arguments))


if __name__ == "__main__":
    main()
