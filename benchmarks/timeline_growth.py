"""What a message costs on a short timeline and on a long one: it should be the same.

    python -m benchmarks.timeline_growth [--full] [--messages 20000] [--directory DIR]

Brokers hold 10^4 and 10^6 (with --full also 10^7) messages over a month, written straight into the store. Then the same
traffic goes through each: messages are scheduled, leased and completed by a client in this process, a thousand at a
time. There are two kinds of traffic:

    near   the new messages are due at once; those that were there come later. This is how timers and retries are used
    far    the new messages are due at any time of a month that has passed, and the oldest ones of the timeline are
           done: every message is in another place of the file, which is the worst case for a store on pages

The cost of a message is the processor time of the broker, all its threads and the system's work for it included: it
does not depend on what else runs on the machine. Prints it, with the time of the clock beside it, and the ratio to the
shortest timeline. What the store alone costs is told by `benchmarks.timeline_store_growth`.
"""

import argparse
import asyncio
import random
import tempfile
import time
from typing import NamedTuple

import psutil
import uvloop

from benchmarks.machine import head
from benchmarks.timeline_fill import BODY, filled
from tidemill.client.timeline import AsyncLease, AsyncTimeline, Message
from tidemill.testing import Broker

BATCH = 1_000
WARM_UP = 2_000
MONTH_S = 30 * 24 * 3_600
HOUR_S = 3_600
LIMIT = 1.5


class Cost(NamedTuple):
    """Microseconds per message: of the broker's processor, and of the clock."""

    processor_us: float
    clock_us: float


async def through(address: str, kind: str, messages: int) -> None:
    """Schedule so many messages, and complete as many."""
    draw = random.Random(messages)
    reach_s = MONTH_S if kind == "far" else 1
    async with AsyncTimeline(address, kind) as timeline:
        for _ in range(0, messages, BATCH):
            now = time.time()
            await timeline.schedule([Message(BODY, now - draw.random() * reach_s) for _ in range(BATCH)])
        await work(timeline, messages)


async def work(timeline: AsyncTimeline, messages: int) -> None:
    """Lease and complete so many messages."""
    tasks: set[asyncio.Task[None]] = set()
    done = 0
    async for lease in timeline.work(max_in_flight=BATCH, idle_ms=60_000):
        task = asyncio.create_task(complete(lease))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        done += 1
        if done == messages:
            break
    await asyncio.gather(*tasks)


async def complete(lease: AsyncLease) -> None:
    await lease.complete()


async def cost(kind: str, pending: int, messages: int, directory: str | None) -> Cost:
    """What a message costs on a timeline of that length."""
    now_ms = time.time_ns() // 1_000_000
    start_ms = now_ms - MONTH_S * 1_000 if kind == "far" else now_ms + HOUR_S * 1_000
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        await filled(folder, kind, pending, start_ms, start_ms + MONTH_S * 1_000)
        with Broker(process=True, data_dir=folder) as broker:
            process = psutil.Process(broker._runner.pid)  # type: ignore[union-attr] # a child process
            await through(broker.grpc, kind, WARM_UP)
            before, begun = process.cpu_times(), time.perf_counter()
            await through(broker.grpc, kind, messages)
            ended, after = time.perf_counter(), process.cpu_times()
    used_s = after.user + after.system - before.user - before.system
    return Cost(used_s / messages * 1e6, (ended - begun) / messages * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--full", action="store_true", help="also with ten million pending messages")
    parser.add_argument("--kind", choices=("near", "far"), help="only this kind of traffic")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--directory", help="where the files are written: a real disk")
    options = parser.parse_args()
    head("timeline_growth")
    uvloop.run(run(options))


async def run(options: argparse.Namespace) -> None:
    """Every kind of traffic on every length of timeline."""
    for kind in [options.kind] if options.kind else ["near", "far"]:
        base: Cost | None = None
        for pending in [10**4, 10**6, *([10**7] if options.full else [])]:
            found = await cost(kind, pending, options.messages, options.directory)
            base = base or found
            ratio = found.processor_us / base.processor_us
            print(
                f"{pending:>10,} pending, {kind:4}  {found.processor_us:6.1f} us of processor a message, "
                f"{found.clock_us:6.1f} us by the clock; ratio {ratio:.2f} (limit {LIMIT})",
                flush=True,
            )


if __name__ == "__main__":
    main()
