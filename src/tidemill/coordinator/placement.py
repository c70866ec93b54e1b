"""Seats: which groups and transactional ids this broker coordinates.

Whoever leads a partition of an internal topic coordinates what is kept in it. When leadership comes, the coordinator
reads the partition before it answers; when it goes, whoever waits is sent to the next. This runs beside the following
of the image, for reading may take a while; what was decided meanwhile is looked at when it is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

import structlog

from tidemill.groups.coordinator import GroupCoordinator
from tidemill.model.errors import TidemillError
from tidemill.model.topics import GROUP_OFFSETS, TRANSACTION_STATE
from tidemill.supervision.supervisor import Supervisor
from tidemill.transactions.coordinator import TransactionCoordinator

RETRY_S = 1.0
RETRY_S_MAX = 60.0

log = structlog.get_logger("tidemill.broker")


class Coordinator(Protocol):
    """What keeps its state in the partitions of one internal topic."""

    led: Mapping[int, int] | None
    """The partitions that this broker leads, with their epochs; None before the start."""

    @property
    def loaded(self) -> Collection[int]:
        """The partitions that were read."""

    async def let_go(self, partitions: Iterable[int]) -> None:
        """Forget the state of partitions that another broker leads."""

    async def load(self, partition: int, epoch: int) -> None:
        """Read the state of a partition that this broker leads since `epoch`."""


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
        self._groups.start()
        await self._follow()
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
            await self._follow()
            pause_s = RETRY_S if self._done else min(2 * pause_s, RETRY_S_MAX)
            if self._done:
                self._told.clear()

    async def _follow(self) -> None:
        groups = await self._try(take_over(self._groups, self._led(GROUP_OFFSETS)))
        transactions = await self._try(take_over(self._transactions, self._led(TRANSACTION_STATE)))
        self._done = groups and transactions

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
