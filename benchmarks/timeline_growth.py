"""What a message costs on a short timeline and on a long one: it should be the same.

    python -m benchmarks.timeline_growth [--full] [--messages 40000] [--directory DIR | --keep DIR]

Brokers hold 10^4 and 10^6 (with --full also 10^7) messages over a month, written straight into the store. Then the same
traffic goes through each: messages are scheduled, leased and completed by a client in this process, a thousand at a
time, so that the timeline stays as long as it is. There are two kinds of traffic:

    near   the new messages are due at once; those that were there come later. This is how timers and retries are used
    far    the new messages are due at any time of a month that has passed, and the oldest ones of the timeline are
           done: every message is in another place of the file, which is the worst case for a store on pages

The cost of a message is the processor time of the broker, all its threads and the system's work for it included: it
does not wait for what else runs on the machine, and the brokers take turns, so that it disturbs all alike. Prints it, with the time of the clock beside it, and the ratio to the
shortest timeline. What the store alone costs, and what it costs to remove the rows of messages that are gone (which
begins when enough of them are, and may be outside of what is measured here), is told by
`benchmarks.timeline_store_growth`.
"""

import argparse
import asyncio
import random
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import psutil
import uvloop

from benchmarks.machine import head
from benchmarks.timeline_fill import BODY, kept
from tidemill.client.timelines import AsyncLease, AsyncTimeline, Message
from tidemill.testing import Broker

BATCH = 1_000
WARM_UP = 5_000
MONTH_S = 30 * 24 * 3_600
DAY_S = 24 * 3_600
LIMIT = 1.5


class Cost(NamedTuple):
    """Microseconds per message: of the broker's processor, and of the clock."""

    processor_us: float
    clock_us: float


class Line:
    """A broker with a timeline of a given length, and the traffic that goes through it."""

    def __init__(self, kind: str, pending: int, broker: Broker, timeline: AsyncTimeline) -> None:
        self.pending = pending
        self._process = psutil.Process(broker._runner.pid)  # type: ignore[union-attr] # a child process
        self._timeline = timeline
        self._reach_s = MONTH_S if kind == "far" else 1
        self._draw = random.Random(1)
        self._leases = aiter(timeline.work(max_in_flight=BATCH, idle_ms=600_000))
        self._clock_s = 0.0

    @classmethod
    async def opened(cls, kind: str, pending: int, options: argparse.Namespace, stack: AsyncExitStack) -> "Line":
        """Fill a timeline, unless one was kept, and start its broker."""
        now_ms = time.time_ns() // 1_000_000
        start_ms = now_ms - MONTH_S * 1_000 if kind == "far" else now_ms + DAY_S * 1_000
        home = Path(options.keep or stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory)))
        folder = await kept(home, kind, pending, start_ms, start_ms + MONTH_S * 1_000)
        broker = stack.enter_context(Broker(process=True, data_dir=str(folder)))
        return cls(kind, pending, broker, await stack.enter_async_context(AsyncTimeline(broker.grpc, kind)))

    async def round(self) -> None:
        """Schedule a batch, and complete as many messages: what is pending stays as long as it was."""
        begun, now = time.perf_counter(), time.time()
        reach_s, draw = self._reach_s, self._draw.random
        await self._timeline.schedule([Message(BODY, now - draw() * reach_s) for _ in range(BATCH)])
        leases = [await anext(self._leases) for _ in range(BATCH)]
        await asyncio.gather(*(complete(lease) for lease in leases))
        self._clock_s += time.perf_counter() - begun

    def spent(self) -> Cost:
        """What was spent since the start, in microseconds."""
        used = self._process.cpu_times()
        return Cost((used.user + used.system) * 1e6, self._clock_s * 1e6)


async def complete(lease: AsyncLease) -> None:
    await lease.complete()


async def costs(kind: str, sizes: list[int], options: argparse.Namespace) -> list[Cost]:
    """What a message costs on timelines of these lengths; they take turns, so that other work hits all of them alike."""
    messages = options.messages
    async with AsyncExitStack() as stack:
        lines = [await Line.opened(kind, pending, options, stack) for pending in sizes]
        for line in lines:
            for _ in range(0, WARM_UP, BATCH):
                await line.round()
        before = [line.spent() for line in lines]
        for _ in range(0, messages, BATCH):
            for line in lines:
                await line.round()
        after = [line.spent() for line in lines]
    return [
        Cost((end.processor_us - start.processor_us) / messages, (end.clock_us - start.clock_us) / messages)
        for start, end in zip(before, after, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--full", action="store_true", help="also with ten million pending messages")
    parser.add_argument("--kind", choices=("near", "far"), help="only this kind of traffic")
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--directory", help="where the files are written: a real disk")
    parser.add_argument("--keep", metavar="DIR", help="keep the filled files there, and use those that are there")
    options = parser.parse_args()
    head("timeline_growth")
    uvloop.run(run(options))


async def run(options: argparse.Namespace) -> None:
    """Every kind of traffic on every length of timeline."""
    sizes = [10**4, 10**6, *([10**7] if options.full else [])]
    for kind in [options.kind] if options.kind else ["near", "far"]:
        found = await costs(kind, sizes, options)
        for pending, cost in zip(sizes, found, strict=True):
            by_processor, by_clock = cost.processor_us / found[0].processor_us, cost.clock_us / found[0].clock_us
            print(
                f"{pending:>10,} pending, {kind:4}  {cost.processor_us:6.1f} us of processor a message, "
                f"{cost.clock_us:6.1f} us by the clock; ratios {by_processor:.2f} and {by_clock:.2f} (limit {LIMIT})",
                flush=True,
            )


if __name__ == "__main__":
    main()
