"""Watches the clocks: reads them, stores the record, asks other clocks, and answers `may_delete`.

Every deletion by time must call `may_delete` directly before it. The call compares the clocks first, so that a jump
between two looks of the background task is noticed before anything is deleted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

import structlog

from tidemill.clocks.core.doubt import ClockDoubt, ClockVerdict, Difference, DoubtKind, DoubtLimits, Reading
from tidemill.clocks.record import ClockRecord
from tidemill.model.errors import TidemillError
from tidemill.supervision.supervisor import Supervisor

LOOK_S = 1.0
ASK_S = 10.0
SAVE_S = 60.0
ASK_TIMEOUT_S = 5.0

STORE = "the timeline store"
STORE_ERROR_MS = 5_000
TRUSTED, IN_DOUBT = "trusted", "in doubt"
BY_OPERATOR = "operator"
BY_EVIDENCE = "evidence"

log = structlog.get_logger("tidemill.clock")


class Clocks(Protocol):
    """The clocks of this machine."""

    def wall_ms(self) -> int:
        """The time of day."""

    def boot_ms(self) -> int:
        """Return a clock that cannot be set and that continues while the machine sleeps."""

    def boot_id(self) -> str:
        """Return an id that differs from boot to boot, or an empty string where the system has none."""


Source = Callable[[], Awaitable[Iterable[Reading]]]
"""Reads other clocks now. Unreachable clocks are left out."""


class ClockWatch:
    """Decides for the whole broker whether its wall clock is trusted."""

    def __init__(self, clocks: Clocks, record: ClockRecord, limits: DoubtLimits) -> None:
        self.sources: list[Source] = []
        self.listeners: list[Callable[[], None]] = []
        self.accepted_by = ""
        self.accepted_ms = 0
        self._clocks = clocks
        self._record = record
        self._core = ClockDoubt(limits, clocks.wall_ms(), clocks.boot_ms(), clocks.boot_id(), record.read())
        self._trusted = True
        self._tasks: list[asyncio.Task[None]] = []
        self._after(self._core.verdict())

    def start(self, supervisor: Supervisor | None = None) -> None:
        """Compare, ask other clocks and save in the background."""
        self._record.write(self._core.seen())
        keep = (supervisor or Supervisor()).keep
        self._tasks = [keep("clock watch", self._look_for_ever), keep("clock comparison", self._ask_for_ever)]

    async def close(self) -> None:
        """Stop, and record the time of the stop."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.look()
        self._record.write(self._core.seen())

    def look(self) -> ClockVerdict:
        """Compare the clocks now."""
        verdict = self._core.look(self._clocks.wall_ms(), self._clocks.boot_ms())
        self._after(verdict)
        return verdict

    def may_delete(self) -> bool:
        """Whether something may be deleted because it is old by the wall clock."""
        return self.look().trusted

    def reasons(self) -> tuple[str, ...]:
        """Why the clock is in doubt, as of the last look. Empty while it is trusted."""
        return tuple(reason.text for reason in self._core.verdict().reasons)

    def kinds(self) -> tuple[str, ...]:
        """The kinds of these reasons."""
        return tuple(reason.kind.value for reason in self._core.verdict().reasons)

    @property
    def has_base(self) -> bool:
        """Whether durations can be added to a right time of day."""
        return self._core.has_base

    def steady_ms(self) -> int:
        """Return the time of day without a doubtful change."""
        self.look()
        return self._core.steady_ms

    def boot_ms(self) -> int:
        """Return the boot clock, with which sources date a reading."""
        return self._clocks.boot_ms()

    def wall_ms(self) -> int:
        """Return the unmodified time of day."""
        return self._clocks.wall_ms()

    @property
    def trusted(self) -> bool:
        """Whether the clock was trusted at the last look."""
        return self._trusted

    def read_store(self, their_ms: int) -> None:
        """Record a reading of the timeline store's clock. Its age is less than the timeout of a call."""
        self._core.read(Reading(DoubtKind.STORAGE, STORE, their_ms, STORE_ERROR_MS, self.boot_ms()))

    def differences(self) -> Sequence[Difference]:
        """Return every other clock with a recent reading."""
        return self._core.differences()

    def accept(self) -> tuple[str, ...]:
        """Trust the wall clock, because an operator confirmed it. Return the reasons that this ends."""
        ended = tuple(reason.text for reason in self.look().reasons)
        self._core.accept()
        if ended:
            self._note_accepted(BY_OPERATOR)
            self._after(self._core.verdict(), reported=True)
        return ended

    def status(self) -> dict[str, Any]:
        """Return everything about the clock as plain data."""
        verdict = self.look()
        return {
            "state": TRUSTED if verdict.trusted else IN_DOUBT,
            "wall_ms": self._clocks.wall_ms(),
            "reasons": [{"kind": one.kind.value, "text": one.text} for one in verdict.reasons],
            "in_doubt_ms": verdict.doubted_ms,
            "accepted_in_ms": verdict.accepted_in_ms,
            "accepted_by": self.accepted_by or None,
            "accepted_ms": self.accepted_ms or None,
            "differences": [
                {"kind": one.kind.value, "target": one.target, "offset_ms": one.offset_ms, "error_ms": one.error_ms}
                for one in self._core.differences()
            ],
        }

    def _note_accepted(self, by: str) -> None:
        self.accepted_by, self.accepted_ms = by, self._clocks.wall_ms()

    def _after(self, verdict: ClockVerdict, *, reported: bool = False) -> None:
        """Log a change of the verdict once, and store it."""
        if verdict.trusted == self._trusted:
            return
        self._trusted = verdict.trusted
        if verdict.trusted:
            if not reported:
                self._note_accepted(BY_EVIDENCE)
            log.warning("clock_trusted", accepted_by=self.accepted_by)
        else:
            log.error("clock_in_doubt", reasons=[reason.text for reason in verdict.reasons])
        self._record.write(self._core.seen())
        for listener in list(self.listeners):
            listener()

    async def _look_for_ever(self) -> None:
        looks = 0
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
            looks += 1
            if looks % round(SAVE_S / LOOK_S) == 0:
                await asyncio.to_thread(self._record.write, self._core.seen())

    async def _ask_for_ever(self) -> None:
        while True:
            await self._ask()
            await asyncio.sleep(ASK_S)

    async def _ask(self) -> None:
        found = await asyncio.gather(*(self._ask_one(source) for source in self.sources))
        for reading in (one for readings in found for one in readings):
            self._core.read(reading)

    async def _ask_one(self, source: Source) -> Sequence[Reading]:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                return list(await source())
        except (TidemillError, OSError) as error:  # a timeout is an OSError
            log.debug("clock_read_failed", error=str(error))
            return ()
