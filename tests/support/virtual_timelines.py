"""Timelines on a virtual clock.

The event loop jumps to the next timer. Tests can set the wall clock, and consumers store their messages.
"""

import asyncio
import random
import selectors
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.support.waiting import eventually_async

from tidemill.model.timeline_errors import TimelineError
from tidemill.timelines.clock import Clock
from tidemill.timelines.consumer import ConsumerTerms, Granted, TimelineConsumer
from tidemill.timelines.core.lease import Command, CommandOutcome, Complete
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.dead_letters import Append
from tidemill.timelines.dispatcher import Dispatcher, ScheduleRequest
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.memory import MemoryTimelineStore

START_MS = 1_800_000_000_000
T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    """Does not wait, but adds the waiting time to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.waits = 0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("everything waits, and nothing will ever happen")
        if timeout > 0:
            self.now_s += timeout
            self.waits += 1
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which an hour takes no time."""

    def __init__(self) -> None:
        self.jumping = _Jumping()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now_s


class World:
    """The clocks of one virtual machine. `jump_ms` sets the wall clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.wall_offset_ms = 0
        self.clock = Clock(self._wall_ns, self._steady_ns)

    def jump_ms(self, ms: int) -> None:
        self.wall_offset_ms += ms

    def true_ms(self) -> float:
        """The time of the monotonic clock."""
        return START_MS + self.loop.time() * 1_000

    def _steady_ns(self) -> int:
        return round(self.loop.time() * 1_000_000_000)

    def _wall_ns(self) -> int:
        return (START_MS + self.wall_offset_ms) * 1_000_000 + self._steady_ns()


@dataclass(slots=True)
class Received:
    """A lease as a consumer received it, with the time of the monotonic clock."""

    at_ms: float
    granted: Granted
    consumer: str

    @property
    def id(self) -> str:
        return self.granted.message.id

    @property
    def late_ms(self) -> float:
        return self.at_ms - self.granted.message.scheduled_ms


@dataclass(slots=True)
class Fleet:
    """A dispatcher on a virtual clock, with consumers."""

    world: World
    dispatcher: Dispatcher
    received: list[Received] = field(default_factory=list)
    ended: list[TimelineError] = field(default_factory=list)
    muted: set[str] = field(default_factory=set)
    """Consumers that do not answer pings."""
    treat: Callable[[Received], None] | None = None
    """What consumers do with a received message."""

    def now_ms(self) -> int:
        return round(self.world.true_ms())

    def consumer(self, name: str = "line", **terms: Any) -> TimelineConsumer:
        """Connect a consumer that only stores its messages."""
        terms.setdefault("id", "w1")

        def push(granted: list[Granted]) -> None:
            for one in granted:
                received = Received(self.world.true_ms(), one, terms["id"])
                self.received.append(received)
                if self.treat is not None:
                    self.treat(received)

        return self.dispatcher.attach(name, ConsumerTerms(**terms), push=push, end=self.ended.append)

    async def answer_pings(self) -> None:
        """Report consumers as alive to the dispatcher, as the server does."""
        while True:
            for timeline in self.dispatcher.timelines():
                for consumer in self.dispatcher.consumers(timeline.name):
                    if consumer.id not in self.muted:
                        self.dispatcher.alive(timeline.name, consumer)
            await asyncio.sleep(1)

    async def schedule(self, *dues_ms: int, name: str = "line", **more: Any) -> list[str]:
        wanted = [ScheduleRequest(b"body", due_ms, **more) for due_ms in dues_ms]
        return [one.id for one in await self.dispatcher.schedule(name, wanted)]

    async def complete(self, received: Sequence[Received], name: str = "line") -> list[CommandOutcome | TimelineError]:
        commands: list[Command] = [Complete(one.granted.message.seq, one.granted.lease.token) for one in received]
        return await self.dispatcher.settle(name, commands)

    async def until(self, condition: Callable[[], bool], limit_s: float = 600) -> None:
        """Advance virtual time until the condition holds."""
        await eventually_async(condition, within_s=limit_s, interval_s=0.01)


@asynccontextmanager
async def virtual_fleet(
    *,
    store: TimelineStore | None = None,
    settings: TimelineSettings | None = None,
    seed: int = 1,
    append: Append | None = None,
) -> AsyncIterator[Fleet]:
    """A dispatcher that has one timeline, `line`; the running loop must be a `VirtualLoop`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    world = World(loop)
    dispatcher = Dispatcher(store or MemoryTimelineStore(), world.clock, random.Random(seed), append=append)
    await dispatcher.open()
    await dispatcher.create("line", settings or TimelineSettings())
    fleet = Fleet(world, dispatcher)
    pings = asyncio.create_task(fleet.answer_pings())
    try:
        yield fleet
    finally:
        pings.cancel()
        await dispatcher.close()
