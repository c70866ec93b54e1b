"""A queue of messages of one timeline that are moved in their own task: dead letters, or missed occurrences.

A target that cannot be reached (its topic rejects, the store fails) must not delay other messages, so the delivery only
queues its dead letters. A failed batch is logged once, and the next rescan of the store finds its messages again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from tidemill.model.timeline_errors import TimelineError
from tidemill.timelines.core.message import TimedMessage
from tidemill.timelines.wakeup import Wakeup

RETRY_S = 0.5
BATCH_MAX = 1_000

MoveDeadLetters = Callable[[Sequence[TimedMessage]], Awaitable[None]]
log = structlog.get_logger(__name__)


class DeadLetterQueue:
    """Moves the queued messages; `moved` is called with each batch, and whether it worked."""

    def __init__(
        self,
        name: str,
        move: MoveDeadLetters,
        *,
        moved: Callable[[Sequence[TimedMessage], bool], None],
        failure: str = "dead_letter_failed",
    ) -> None:
        self._failure = failure
        self._name = name
        self._move = move
        self._moved = moved
        self._dead: list[TimedMessage] = []
        self._wakeup = Wakeup()
        self._failing = False

    def add(self, dead: Sequence[TimedMessage]) -> None:
        """Queue messages."""
        if dead:
            self._dead.extend(dead)
            self._wakeup.notify()

    async def run(self) -> None:
        """Move messages, without end."""
        while True:
            await self._wakeup.wait(None)
            while self._dead:
                batch, self._dead = self._dead[:BATCH_MAX], self._dead[BATCH_MAX:]
                await self._move_batch(batch)

    async def _move_batch(self, batch: Sequence[TimedMessage]) -> None:
        done = False
        try:
            done = await self._try(batch)
            if not done:
                await asyncio.sleep(RETRY_S)
        finally:
            self._moved(batch, done)

    async def _try(self, batch: Sequence[TimedMessage]) -> bool:
        try:
            await self._move(batch)
        except TimelineError as error:
            if not self._failing:
                log.warning(self._failure, timeline=self._name, error=str(error))
            self._failing = True
            return False
        self._failing = False
        return True
