"""No message waits while a consumer is free: the dispatcher with room for a handful of messages, from a seed.

A message that no part holds, and that no part is going to look for, comes with the next rescan only, a minute
later. It takes little memory, many changes and some time in the store to lose one out of sight; limits of a handful
make rare what is common, and the other way round.
"""

import asyncio
import random
from typing import Any

import pytest
from tests.support.virtual_timelines import Fleet, Received, virtual_fleet

from tidemill.timelines import delivery, prefetcher
from tidemill.timelines.consumer import TimelineConsumer
from tidemill.timelines.core.lease import Command, CommandOutcome, Complete, Extend, LeaseGrant, Release
from tidemill.timelines.core.message import EVERYTHING, MessageStatus, Scheduled, Selection, TimedMessage
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.dispatcher import ScheduleRequest
from tidemill.timelines.memory import MemoryTimelineStore

pytestmark = pytest.mark.event_loop("virtual_selector")

ROUNDS = 60
PATIENCE_MS = 4_000
"""Longer than a lease and some windows, and far shorter than the time between rescans."""


class SlowStore(MemoryTimelineStore):
    """Takes its time before and after each call."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    async def _wait(self) -> None:
        await asyncio.sleep(self._rng.expovariate(1 / 0.003))

    async def schedule(self, *which: Any) -> list[Scheduled]:
        await self._wait()
        kept = await super().schedule(*which)
        await self._wait()
        return kept

    async def acquire(self, *which: Any, **how: Any) -> list[LeaseGrant | None]:
        await self._wait()
        leases = await super().acquire(*which, **how)
        await self._wait()
        return leases

    async def settle(self, *which: Any, **how: Any) -> list[CommandOutcome]:
        await self._wait()
        outcomes = await super().settle(*which, **how)
        await self._wait()
        return outcomes

    async def find(self, *which: Any, **how: Any) -> list[TimedMessage]:
        await self._wait()
        found = await super().find(*which, **how)
        await self._wait()
        return found


class Crowd:
    """Consumers that come and go, and do this or that with what they get."""

    def __init__(self, fleet: Fleet, rng: random.Random, *, messages_max: int, bytes_max: int) -> None:
        self._fleet = fleet
        self._rng = rng
        self._limits = messages_max, bytes_max
        self._tasks: set[asyncio.Task[None]] = set()
        self.here: dict[str, TimelineConsumer] = {}
        fleet.treat = self._got

    def _got(self, received: Received) -> None:
        task = asyncio.create_task(self._treat(received))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _treat(self, received: Received) -> None:
        await asyncio.sleep(self._rng.choice([0, 0.01, 0.05, 0.2]))
        message, lease = received.granted
        now_ms, draw = self._fleet.world.clock.now_ms(), self._rng.random()
        command: Command = Complete(message.seq, lease.token)
        if draw < 0.08:
            command = Release(message.seq, lease.token, now_ms + self._rng.choice([0, 50, 1_500, 6_000]))
        elif draw < 0.12:
            command = Extend(message.seq, lease.token, now_ms + 2_000)
        if draw < 0.12 or draw > 0.15:  # others are forgotten
            await self._fleet.dispatcher.settle("line", [command])

    async def come_and_go(self) -> None:
        for number in range(1_000_000):
            if not self.here or (len(self.here) < 3 and self._rng.random() < 0.5):
                consumer = self._fleet.consumer(id=f"w{number % 5}", max_in_flight=self._rng.choice([1, 5, 30]))
                self.here[consumer.id] = consumer
                prefetch = self._fleet.dispatcher._deliveries["line"]._prefetch
                prefetch._messages_max, prefetch._bytes_max = self._limits
            elif self._rng.random() < 0.3:
                gone = self.here.pop(self._rng.choice(list(self.here)))
                self._fleet.dispatcher.detach("line", gone)
            await asyncio.sleep(self._rng.uniform(0.1, 8))

    def idle(self) -> bool:
        """Whether a consumer is there, and none has anything to do."""
        return bool(self.here) and not any(one.held or one.reserved for one in self.here.values())

    async def go(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _produce(fleet: Fleet, rng: random.Random) -> None:
    ids: list[str] = []
    for _ in range(ROUNDS):
        ahead = [-1_000, 0, 0, 100, 3_000, 4_990, 5_010, 20_000]
        wanted = [
            ScheduleRequest(b"x" * rng.choice([1, 10, 90, 300]), fleet.now_ms() + rng.choice(ahead))
            for _ in range(rng.choice([1, 1, 5, 40]))
        ]
        ids.extend(one.id for one in await fleet.dispatcher.schedule("line", wanted))
        some = rng.sample(ids, min(len(ids), rng.choice([1, 5, 30])))
        draw = rng.random()
        if draw < 0.28:
            await fleet.dispatcher.move("line", some, fleet.now_ms() + rng.choice([0, 10, 2_000, 8_000]))
        elif draw < 0.4:
            await fleet.dispatcher.cancel("line", some)
        await asyncio.sleep(rng.choice([0.01, 0.1, 1, 3]))


async def _no_message_waits(fleet: Fleet, crowd: Crowd, store: MemoryTimelineStore) -> None:
    """Fails when messages are due and consumers idle for long."""
    idle_since_ms: int | None = None
    while True:
        await asyncio.sleep(0.5)
        now_ms = fleet.now_ms()
        due = Selection(end_ms=now_ms - 100, status=MessageStatus.AVAILABLE)
        waiting = await MemoryTimelineStore.find(store, "line", due, now_ms=now_ms, limit=1)
        if not waiting or not crowd.idle():
            idle_since_ms = None
        elif idle_since_ms is None:
            idle_since_ms = now_ms
        assert idle_since_ms is None or now_ms - idle_since_ms <= PATIENCE_MS, f"{waiting[0].id} is forgotten"


@pytest.mark.parametrize("seed", [6, 23, 26, *range(3)])
async def test_no_message_waits_while_a_consumer_is_free(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    fill = rng.choice([2, 5, 20])
    monkeypatch.setattr(delivery, "QUEUED_MESSAGES_MAX", rng.choice([3, 10, 50]))
    monkeypatch.setattr(delivery, "LEASE_BATCH_MAX", rng.choice([2, 10, 1_000]))
    monkeypatch.setattr(prefetcher, "FILL_MESSAGES_MAX", fill)
    monkeypatch.setattr(prefetcher, "TAKE_IN_MAX", rng.choice([1, 3, 500]))
    monkeypatch.setattr(prefetcher, "NOTES_MAX", rng.choice([3, 20, 50_000]))
    store = SlowStore(random.Random(seed))

    async with virtual_fleet(
        store=store, settings=TimelineSettings(lease_ms=3_000, window_ms=1_000), seed=seed
    ) as fleet:
        crowd = Crowd(
            fleet, rng, messages_max=max(3 * fill, rng.choice([25, 100])), bytes_max=rng.choice([3_000, 10**9])
        )
        watching = asyncio.create_task(_no_message_waits(fleet, crowd, store))
        coming = asyncio.create_task(crowd.come_and_go())
        try:
            await _produce(fleet, rng)
            while not watching.done() and await fleet.dispatcher.count("line", EVERYTHING):
                await asyncio.wait([watching], timeout=0.1)
        finally:
            coming.cancel()
            watching.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            await crowd.go()
        (outcome,) = await asyncio.gather(watching, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError), outcome
