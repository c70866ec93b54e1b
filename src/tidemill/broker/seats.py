"""Seats: which groups and transactional ids this broker coordinates.

Whoever leads a partition of an internal topic coordinates what is kept in it. When leadership comes, the coordinator
reads the partition before it answers; when it goes, whoever waits is sent to the next. This runs beside the following
of the image, for reading may take a while; what was decided meanwhile is looked at when it is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import structlog

from tidemill.groups.coordinator import GroupCoordinator
from tidemill.model.errors import TidemillError
from tidemill.model.topics import GROUP_OFFSETS, TRANSACTION_STATE
from tidemill.supervision.supervisor import Supervisor
from tidemill.transactions.coordinator import TransactionCoordinator

RETRY_S = 1.0
RETRY_S_MAX = 60.0

log = structlog.get_logger("tidemill.broker")


class Seats:
    """Keeps the coordinators where leadership is."""

    def __init__(
        self,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        led: Callable[[str], Mapping[int, int]],
        supervisor: Supervisor,
    ) -> None:
        self._groups = groups
        self._transactions = transactions
        self._led = led
        self._supervisor = supervisor
        self._done = False
        """Whether everything that is led has been read."""
        self._fresh = asyncio.Event()
        self._told: set[str] = set()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take the seats that this broker has now, then keep looking."""
        groups = await self._try(self._groups.start(self._led(GROUP_OFFSETS)))
        transactions = await self._try(self._transactions.start(self._led(TRANSACTION_STATE)))
        self._done = groups and transactions
        self._running = self._supervisor.keep("coordinators", self._run)

    def look(self) -> None:
        """Leadership may have moved."""
        self._fresh.set()

    async def close(self) -> None:
        """Look no more."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        pause_s = RETRY_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._done else pause_s):
                    await self._fresh.wait()
            self._fresh.clear()
            self._done = False  # until it is read to its end, also when this loop fails and starts again
            groups = await self._try(self._groups.follow(self._led(GROUP_OFFSETS)))
            transactions = await self._try(self._transactions.follow(self._led(TRANSACTION_STATE)))
            self._done = groups and transactions
            pause_s = RETRY_S if self._done else min(2 * pause_s, RETRY_S_MAX)
            if self._done:
                self._told.clear()

    async def _try(self, following: Awaitable[None]) -> bool:
        """Whether all of it could be read; if not, that is told once."""
        try:
            await following
        except (TidemillError, OSError) as error:
            if str(error) not in self._told:
                log.error("a coordinator could not be read; it is tried again", error=str(error))
                self._told.add(str(error))
            return False
        return True
