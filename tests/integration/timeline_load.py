"""Two workers on a timeline during faults, and the invariants that must always hold.

No message is lost or early. No message has two leases at a time. A completed message is never delivered again. Times
are those of the test's monotonic clock.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tidemill.client.timelines import AsyncLease, AsyncTimeline, Message
from tidemill.model.timeline_errors import StoreUnavailable, TimelineError

MESSAGES = 2_000
SPREAD_S = 3.0
LEASE_MS = 2_000
LIMIT_S = 90


class Record:
    """The events that a worker saw."""

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
    """Complete a message. An unknown outcome does not count, because the message may be delivered again."""
    try:
        await lease.complete()
    except (TimelineError, TimeoutError):
        return
    record.completed.add(lease.id)


async def work(timeline: AsyncTimeline, consumer: str, record: Record, lease_ms: int = LEASE_MS) -> None:
    tasks = set()
    async for lease in timeline.work(consumer_id=consumer, max_in_flight=50, lease_ms=lease_ms):
        record.got(lease)
        tasks.add(asyncio.create_task(_complete(lease, record)))


async def run(address: str, trouble: Callable[[], Awaitable[None]], spread_s: float = SPREAD_S) -> Record:
    """Schedule messages, run two workers during the fault, and continue until the timeline is empty."""
    record = Record()
    async with AsyncTimeline(address, "line", timeout_ms=LIMIT_S * 1_000) as timeline:
        await timeline.create(lease_ms=LEASE_MS, window_ms=1_000)
        start = time.time() + 0.5
        names = [f"m{number}" for number in range(MESSAGES)]
        await timeline.schedule(
            [Message(b"x", start + spread_s * number / MESSAGES, id=name) for number, name in enumerate(names)]
        )
        workers = [asyncio.create_task(work(timeline, name, record)) for name in ("w1", "w2")]
        await asyncio.sleep(max(0, start + spread_s / 3 - time.time()))
        await trouble()
        await emptied(timeline)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert record.violations == []
        assert await timeline.count() == 0
        assert set(record.delivered) == set(names)
    return record


async def emptied(timeline: AsyncTimeline) -> None:
    """Wait until every message is completed, or the limit has passed."""
    ends = time.monotonic() + LIMIT_S
    left = MESSAGES
    while left and time.monotonic() < ends:
        await asyncio.sleep(0.1)
        with suppress(StoreUnavailable):
            left = await timeline.count()
