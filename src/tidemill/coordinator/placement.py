"""Coordinator placement: which groups and transactional ids this broker coordinates.

The leader of a partition of an internal topic coordinates every group or transactional id that is stored in it. When a
broker becomes leader, its coordinator reads the partition before it responds. When leadership moves away, waiting
clients are redirected. Reading may take a while, so it runs in its own task and not in the task that follows the
metadata.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import structlog

from tidemill.coordinator.interface import Coordinator
from tidemill.model.errors import TidemillError
from tidemill.supervision.supervisor import Supervisor

RETRY_S = 1.0
RETRY_S_MAX = 60.0

log = structlog.get_logger("tidemill.coordinator")


async def take_over(coordinator: Coordinator, led: Mapping[int, int]) -> None:
    """Make a coordinator responsible for these partitions and no others.

    A partition that is led in another epoch is read again: another broker may have written to it in between. One that
    cannot be read does not delay the others; its error is raised when they are loaded.
    """
    before, coordinator.led = coordinator.led or {}, dict(led)
    lost = [partition for partition, epoch in before.items() if led.get(partition) != epoch]
    if lost:
        await coordinator.let_go(lost)
    missing = [partition for partition in led if partition not in coordinator.loaded]
    loads = (coordinator.load(partition, led[partition]) for partition in missing)
    for error in filter(None, await asyncio.gather(*loads, return_exceptions=True)):
        raise error


class CoordinatorPlacement:
    """Keeps the coordinators on the leaders of their internal topics; `coordinators` is by topic."""

    def __init__(
        self,
        coordinators: Mapping[str, Coordinator],
        led: Callable[[str], Mapping[int, int]],
        supervisor: Supervisor,
    ) -> None:
        self._coordinators = coordinators
        self._led = led
        self._supervisor = supervisor
        self._is_loaded = False
        """Whether every partition that this broker leads has been read."""
        self._changed = asyncio.Event()
        self._reported: set[str] = set()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load what this broker leads now, then follow changes of leadership."""
        for coordinator in self._coordinators.values():
            coordinator.start()
        await self._follow()
        self._running = self._supervisor.keep("coordinators", self._run)

    def look(self) -> None:
        """Leadership may have changed."""
        self._changed.set()

    async def close(self) -> None:
        """Stop following changes."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        pause_s = RETRY_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._is_loaded else pause_s):
                    await self._changed.wait()
            self._changed.clear()
            self._is_loaded = False  # until everything is read; also when this loop fails and restarts
            await self._follow()
            pause_s = RETRY_S if self._is_loaded else min(2 * pause_s, RETRY_S_MAX)
            if self._is_loaded:
                self._reported.clear()

    async def _follow(self) -> None:
        outcomes = [
            await self._try(take_over(coordinator, self._led(topic)))
            for topic, coordinator in self._coordinators.items()
        ]
        self._is_loaded = all(outcomes)

    async def _try(self, following: Awaitable[None]) -> bool:
        """Whether everything could be read; an error is logged once."""
        try:
            await following
        except (TidemillError, OSError) as error:
            if str(error) not in self._reported:
                log.error("coordinator_load_failed", error=str(error))
                self._reported.add(str(error))
            return False
        return True
