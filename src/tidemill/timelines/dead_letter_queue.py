"""The dead letters of one timeline on their way to the grave, beside the delivery.

A grave that cannot be reached (its topic refuses, the store fails) must not make the living late, so the delivery only
hands its dead over and goes on. What could not be buried is told once, and found again by the next look into the store.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from tidemill.model.timeline_errors import TimelineError
from tidemill.timelines.core.message import TimedMessage
from tidemill.timelines.wakeup import Wakeup

RETRY_S = 0.5
BATCH_MAX = 1_000

Bury = Callable[[Sequence[TimedMessage]], Awaitable[None]]
log = structlog.get_logger(__name__)


class DeadLetterQueue:
    """Buries what it is given; `buried` is told of each batch, and whether it worked."""

    def __init__(self, name: str, bury: Bury, *, buried: Callable[[Sequence[TimedMessage], bool], None]) -> None:
        self._name = name
        self._bury = bury
        self._buried = buried
        self._dead: list[TimedMessage] = []
        self._alarm = Wakeup()
        self._failing = False

    def add(self, dead: Sequence[TimedMessage]) -> None:
        """These messages have no attempts left."""
        if dead:
            self._dead.extend(dead)
            self._alarm.ring()

    async def run(self) -> None:
        """Bury for ever."""
        while True:
            await self._alarm.wait(None)
            while self._dead:
                batch, self._dead = self._dead[:BATCH_MAX], self._dead[BATCH_MAX:]
                await self._bury_batch(batch)

    async def _bury_batch(self, batch: Sequence[TimedMessage]) -> None:
        done = False
        try:
            done = await self._try(batch)
            if not done:
                await asyncio.sleep(RETRY_S)
        finally:
            self._buried(batch, done)

    async def _try(self, batch: Sequence[TimedMessage]) -> bool:
        try:
            await self._bury(batch)
        except TimelineError as error:
            if not self._failing:
                log.warning("a message could not be moved to its dead letters", timeline=self._name, error=str(error))
            self._failing = True
            return False
        self._failing = False
        return True
