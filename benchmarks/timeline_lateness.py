"""How late messages are: first deliveries at a steady rate, with many more pending behind them.

    python -m benchmarks.timeline_lateness [--rate 5000] [--seconds 10] [--pending 100000] [--full]

A broker process with the default store (SQLite) holds `--pending` messages of the coming year (a million with --full),
which were written straight into the store before it started. Messages are then due at `--rate` per second; a worker in
this process leases and completes them. Lateness is the time from the due time to the worker's hands, by the one clock
of this machine. Prints p50, p99, max, how many came early (must be 0), the broker's processor time for a message, and
its memory before, after and at its peak: with --pending 10000000 the peak is the memory that ten million messages need.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from pathlib import Path

import psutil
import uvloop

from benchmarks.machine import head
from benchmarks.timeline_fill import BODY, filled
from tidemill.client.timelines import AsyncLease, AsyncTimeline, Message
from tidemill.testing import Broker

SCHEDULE_BATCH = 1_000
SCHEDULED_PER_S = 3_000
LEAD_S = 2.0
YEAR_MS = 365 * 24 * 3_600_000
PENDING_FULL = 1_000_000


async def measure(address: str, rate: int, seconds: float) -> list[float]:
    """Lateness of every message, in milliseconds."""
    late_ms: list[float] = []
    total = round(rate * seconds)
    tasks: set[asyncio.Task[None]] = set()
    async with AsyncTimeline(address, "late") as timeline:
        await schedule(timeline, rate, total)
        async for lease in timeline.work(consumer_id="bench", max_in_flight=5_000, idle_ms=60_000):
            late_ms.append(time.time_ns() / 1e6 - lease.due.timestamp() * 1e3)
            task = asyncio.create_task(complete(lease))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if len(late_ms) == total:
                break
        await asyncio.gather(*tasks)
    return late_ms


async def schedule(timeline: AsyncTimeline, rate: int, total: int) -> None:
    """Schedule everything that will be due, and be done before the first of it is."""
    first_due = time.time() + total / SCHEDULED_PER_S + LEAD_S
    for first in range(0, total, SCHEDULE_BATCH):
        numbers = range(first, min(total, first + SCHEDULE_BATCH))
        await timeline.schedule([Message(BODY, first_due + number / rate) for number in numbers])
    assert time.time() < first_due, "scheduling took too long: the machine is too busy for a measurement"


async def complete(lease: AsyncLease) -> None:
    await lease.complete()


def memory_mib(pid: int, kind: str) -> float:
    """The memory of a process: what it holds now (VmRSS), or held at most (VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(kind)) / 1024


def show(late_ms: list[float], options: argparse.Namespace) -> None:
    late_ms.sort()
    p99 = late_ms[int(len(late_ms) * 0.99)]
    early = sum(one < 0 for one in late_ms)
    print(f"delivered: {len(late_ms):,} at {options.rate:,}/s for {options.seconds:g} s")
    print(
        f"lateness: p50 {statistics.median(late_ms):.2f} ms, p99 {p99:.2f} ms, max {late_ms[-1]:.2f} ms, early {early}"
    )


async def run(options: argparse.Namespace, pending: int) -> None:
    """Fill, start a broker, measure and tell."""
    start_ms = time.time_ns() // 1_000_000 + 3_600_000
    with tempfile.TemporaryDirectory() as folder:
        await filled(folder, "late", pending, start_ms, start_ms + YEAR_MS, ordered=True)
        with Broker(process=True, data_dir=folder) as broker:
            process = psutil.Process(broker._runner.pid)  # type: ignore[union-attr] # a child process
            before = memory_mib(process.pid, "VmRSS")
            gc.disable()  # a pause of the one who measures is not the broker's
            late_ms = await measure(broker.grpc, options.rate, options.seconds)
            after, peak = memory_mib(process.pid, "VmRSS"), memory_mib(process.pid, "VmHWM")
            used = process.cpu_times()
    show(late_ms, options)
    each_us = (used.user + used.system) / len(late_ms) * 1e6
    print(f"broker processor: {each_us:.0f} us a message, from its scheduling to its completion, the start included")
    print(f"broker memory: {before:.0f} MiB before, {after:.0f} MiB after, {peak:.0f} MiB at its peak")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pending", type=int, default=0)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    pending = options.pending or (PENDING_FULL if options.full else 100_000)
    head("timeline_lateness")
    uvloop.run(run(options, pending))


if __name__ == "__main__":
    main()
