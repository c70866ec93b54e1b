"""The whole dispatcher from a seed: consumers that connect, leave, stop and answer late, a store that fails, clocks.

What must hold: nothing early (by the true clock, unless the wall clock was set), never two live leases on one message,
a stale token is refused, and every message is delivered in the end.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.support.virtual_timelines import Fleet, Received, virtual_fleet

from tidemill.model.timeline_errors import StoreUnavailable, TimelineError
from tidemill.timelines.clock import Clock
from tidemill.timelines.core.lease import Claim, Command, CommandOutcome, Complete, Extend, LeaseGrant, Release, decide
from tidemill.timelines.core.message import EVERYTHING, NewMessage, Scheduled, TimedMessage
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.memory import MemoryTimelineStore

pytestmark = pytest.mark.event_loop("virtual_selector")

MESSAGES = 1_000
SECONDS = 30


DOWN = 2.0
"""So often does a store fail that is not there at all."""


class FlakyStore(MemoryTimelineStore):
    """Fails some calls, before or after they had their effect, and takes its time."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self.failing = 0.0

    async def _perhaps(self, call: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(self._rng.expovariate(1 / 0.003))
        if self._rng.random() < self.failing / 2:
            raise StoreUnavailable("not done")
        result = await call()
        if self._rng.random() < self.failing / 2:
            raise StoreUnavailable("done, but the response is lost")
        return result

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        result: list[Scheduled] = await self._perhaps(lambda: MemoryTimelineStore.schedule(self, timeline, messages))
        return result

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[LeaseGrant | None]:
        result: list[LeaseGrant | None] = await self._perhaps(
            lambda: MemoryTimelineStore.acquire(self, timeline, claims, now_ms=now_ms, early_ms=early_ms)
        )
        return result

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[CommandOutcome]:
        result: list[CommandOutcome] = await self._perhaps(
            lambda: MemoryTimelineStore.settle(self, timeline, commands, now_ms=now_ms)
        )
        return result

    async def find(self, *which: Any, **how: Any) -> list[TimedMessage]:
        if self.failing >= DOWN:
            raise StoreUnavailable("down")
        return await super().find(*which, **how)


class Checker:
    """Holds what was delivered against the rules."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.live: dict[str, tuple[int, int]] = {}
        self.completed: set[str] = set()
        self.deliveries = 0
        self.violations: list[str] = []

    def demand(self, holds: bool, otherwise: str) -> None:
        """Deliveries happen in callbacks, where an assertion would be lost."""
        if not holds:
            self.violations.append(otherwise)

    def got(self, received: Received) -> None:
        message, lease = received.granted
        self.demand(received.at_ms >= message.due_ms, f"{message.id} came {message.due_ms - received.at_ms} ms early")
        self.demand(message.id not in self.completed, f"{message.id} came again after it was completed")
        live_until_ms = self.live.get(message.id, (0, 0))[1]
        self.demand(live_until_ms <= self._fleet.world.clock.now_ms(), f"{message.id} has two live leases")
        self.live[message.id] = (lease.token, lease.until_ms)
        self.deliveries += 1

    def done(self, message_id: str, token: int) -> None:
        self.demand(self.live.get(message_id, (0, 0))[0] == token, f"a stale token completed {message_id}")
        self.completed.add(message_id)

    def extended(self, message_id: str, token: int, until_ms: int) -> None:
        self.demand(self.live.get(message_id, (0, 0))[0] == token, f"a stale token extended {message_id}")
        self.live[message_id] = (token, until_ms)

    def released(self, message_id: str, token: int) -> None:
        if self.live.get(message_id, (0, 0))[0] == token:
            del self.live[message_id]


def _work(fleet: Fleet, checker: Checker, rng: random.Random, tasks: "set[asyncio.Task[None]]") -> None:
    """Treat each message in some way when it comes; 5 % are forgotten until after their lease."""

    def treat(received: Received) -> None:
        checker.got(received)
        tasks.add(asyncio.create_task(_treat(fleet, checker, rng, received)))

    fleet.treat = treat


async def _treat(fleet: Fleet, checker: Checker, rng: random.Random, one: Received) -> None:
    message, lease = one.granted
    await asyncio.sleep(rng.expovariate(1 / 0.05) if rng.random() < 0.95 else rng.uniform(1, 6))
    draw = rng.random()
    if draw < 0.1:
        until_ms = fleet.world.clock.now_ms() + 3_000
        if await _one(fleet, Extend(message.seq, lease.token, until_ms)) is CommandOutcome.DONE:
            checker.extended(message.id, lease.token, until_ms)
        await asyncio.sleep(rng.uniform(0, 4))
    elif draw < 0.2:
        due_ms = fleet.world.clock.now_ms() + rng.randrange(2_000)
        if await _one(fleet, Release(message.seq, lease.token, due_ms)) in {CommandOutcome.DONE, None}:
            checker.released(message.id, lease.token)
        return
    if await _one(fleet, Complete(message.seq, lease.token)) is CommandOutcome.DONE:
        checker.done(message.id, lease.token)


async def _one(fleet: Fleet, command: Command) -> CommandOutcome | TimelineError | None:
    """One operation; sent again while the store fails, as the client does. None: it is unknown which one did it."""
    repeated = False
    while True:
        try:
            (outcome,) = await fleet.dispatcher.settle("line", [command])
        except StoreUnavailable:
            repeated = True
            await asyncio.sleep(0.1)
            continue
        return None if repeated and outcome is not CommandOutcome.DONE else outcome


async def _produce(fleet: Fleet, rng: random.Random) -> None:
    for number in range(MESSAGES):
        due_ms = fleet.now_ms() + rng.choice([0, rng.randrange(500), rng.randrange(SECONDS * 1_000)])
        while True:
            try:
                await fleet.schedule(due_ms, id=f"m{number}")
                break
            except StoreUnavailable:
                await asyncio.sleep(0.05)
        await asyncio.sleep(rng.expovariate(1 / 0.01))


async def _left(fleet: Fleet) -> int:
    try:
        return await fleet.dispatcher.count("line", EVERYTHING)
    except StoreUnavailable:
        return MESSAGES


async def _trouble(fleet: Fleet, rng: random.Random, store: FlakyStore) -> None:
    """Consumers come, go, stop answering; the store fails for a while."""
    for number in range(8):
        fleet.consumer(id=f"w{number}", rack="abc"[number % 3], lease_ms=2_000, max_in_flight=50)
    while True:
        await asyncio.sleep(rng.expovariate(1 / 2))
        which = f"w{rng.randrange(8)}"
        there = {one.id: one for one in fleet.dispatcher.consumers("line")}
        draw = rng.random()
        if draw < 0.4 and which in there and len(there) > 2:
            fleet.dispatcher.detach("line", there[which])
        elif draw < 0.7:
            fleet.consumer(id=which, rack="abc"[rng.randrange(3)], lease_ms=2_000, max_in_flight=50)
        elif draw < 0.85:
            fleet.muted = {which}
        else:
            store.failing = rng.choice([0.0, 0.1, 0.5])
            await asyncio.sleep(1)
            store.failing = 0.0


async def _simulate(seed: int) -> Checker:
    """One run; the checker with everything it saw."""
    rng = random.Random(seed)
    store = FlakyStore(rng)
    settings = TimelineSettings(window_ms=2_000, lease_ms=2_000)
    async with virtual_fleet(store=store, settings=settings, seed=seed) as fleet:
        checker = Checker(fleet)
        trouble = asyncio.create_task(_trouble(fleet, rng, store))
        tasks: set[asyncio.Task[None]] = set()
        _work(fleet, checker, rng, tasks)
        await _produce(fleet, rng)
        for _ in range(1_200):
            if await _left(fleet) == 0:
                break
            await asyncio.sleep(0.5)
        trouble.cancel()
        await asyncio.gather(trouble, return_exceptions=True)
        await asyncio.gather(*tasks)
        checker.demand(await _left(fleet) == 0, "messages were not delivered")
        checker.demand({one.id for one in fleet.received} == {f"m{number}" for number in range(MESSAGES)}, "lost")
        print(f"seed {seed}: {MESSAGES} messages, {checker.deliveries} deliveries, {fleet.world.loop.time():.0f} s")
    return checker


@pytest.mark.parametrize("seed", range(4))
async def test_rules_hold_whatever_happens(seed: int) -> None:
    checker = await _simulate(seed)
    assert checker.violations == []
    assert checker.deliveries > MESSAGES, "no lease ever ran out: the run proves nothing"


async def test_a_dispatcher_that_pushes_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "due_ms", lambda clock: clock.now_ms() + 5)
    assert any("early" in one for one in (await _simulate(1)).violations)


async def test_a_store_without_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def decide_without_token(
        message: TimedMessage | None, command: Command, now_ms: int
    ) -> tuple[CommandOutcome, TimedMessage | None]:
        if message is not None and isinstance(command, Complete):
            return CommandOutcome.DONE, None
        return decide(message, command, now_ms)

    for home in ("core.lease", "core.changes", "memory"):
        monkeypatch.setattr(f"tidemill.timelines.{home}.decide", decide_without_token, raising=False)
    assert any("stale token" in one for one in (await _simulate(1)).violations)


@pytest.mark.parametrize("jump_ms", [-120_000, 120_000])
async def test_a_jump_of_the_wall_clock_stops_leasing_and_heals(jump_ms: int) -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer(lease_ms=5_000)
        await fleet.schedule(fleet.now_ms(), fleet.now_ms() + 3_000, fleet.now_ms() + 60_000)
        await fleet.until(lambda: len(fleet.received) == 1)
        fleet.world.jump_ms(jump_ms)
        await asyncio.sleep(2.5)
        assert fleet.dispatcher.health().state == "degraded"
        assert await fleet.complete(fleet.received) == [CommandOutcome.DONE]
        await asyncio.sleep(10)
        assert len(fleet.received) == 1
        fleet.world.jump_ms(-jump_ms)
        await asyncio.sleep(2.5)
        assert fleet.dispatcher.health().state == "healthy"
        await fleet.until(lambda: len(fleet.received) == 2, 1)
        await fleet.complete(fleet.received[1:])
        await fleet.until(lambda: len(fleet.received) == 3, 120)
        assert 0 <= fleet.received[2].late_ms <= 2


async def test_a_clock_that_was_corrected_is_believed_after_a_while() -> None:
    async with virtual_fleet() as fleet:
        fleet.consumer()
        fleet.world.jump_ms(120_000)
        await asyncio.sleep(2)
        assert not fleet.dispatcher.guard.may_lease
        await fleet.until(lambda: fleet.dispatcher.guard.may_lease, 60)
        due_ms = fleet.now_ms() + 121_000
        await fleet.schedule(due_ms)
        await fleet.until(lambda: len(fleet.received) == 1, 5)
        assert 0 <= fleet.received[0].at_ms + 120_000 - due_ms <= 2


async def test_a_store_that_is_down_is_spared_and_found_again() -> None:
    store = FlakyStore(random.Random(7))

    async with virtual_fleet(store=store) as fleet:
        fleet.consumer()
        await fleet.schedule(fleet.now_ms() + 20_000)
        store.failing = DOWN
        refused, states = 0, set()
        for _ in range(100):
            with pytest.raises(StoreUnavailable):
                await fleet.schedule(fleet.now_ms())
            refused += 1
            states.add(fleet.dispatcher.health().state)
            await asyncio.sleep(0.1)
        # A question that the store still answers (which timelines there are) may end the doubt at any moment.
        assert "degraded" in states
        assert fleet.dispatcher.health().store_errors_in_row < refused / 2
        store.failing = 0.0
        await fleet.until(lambda: len(fleet.received) == 1, 60)
        await fleet.until(lambda: fleet.dispatcher.health().state == "healthy", 60)
