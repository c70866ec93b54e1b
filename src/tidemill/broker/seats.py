"""Seats: which groups and transactional ids this broker coordinates.

Whoever leads a partition of an internal topic coordinates what is kept in it. When leadership comes, the coordinator
reads the partition before it answers; when it goes, whoever waits is sent to the next. This runs beside the following
of the image, for reading may take a while; what was decided meanwhile is looked at when it is done.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from tidemill.groups.coordinator import GroupCoordinator
from tidemill.model.errors import TidemillError
from tidemill.model.topics import GROUP_OFFSETS, TRANSACTION_STATE
from tidemill.transactions.coordinator import TransactionCoordinator

RETRY_S = 1.0

log = structlog.get_logger("tidemill.broker")


class Seats:
    """Keeps the coordinators where leadership is."""

    def __init__(
        self,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        led: Callable[[str], Mapping[int, int]],
    ) -> None:
        self._groups = groups
        self._transactions = transactions
        self._led = led
        self._fresh = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take the seats that this broker has now, then keep looking."""
        await self._groups.start(self._led(GROUP_OFFSETS))
        await self._transactions.start(self._led(TRANSACTION_STATE))
        self._running = asyncio.create_task(self._run())

    def look(self) -> None:
        """Leadership may have moved."""
        self._fresh.set()

    async def close(self) -> None:
        """Look no more."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            try:
                await self._groups.follow(self._led(GROUP_OFFSETS))
                await self._transactions.follow(self._led(TRANSACTION_STATE))
            except (TidemillError, OSError) as error:
                log.warning("a coordinator could not be read; it is tried again", error=str(error))
                await asyncio.sleep(RETRY_S)
                self._fresh.set()
