"""The timeline store on PostgreSQL, which many brokers may use at once.

Each call is one transaction on a connection of the pool, so calls of one broker run concurrently too. The server
commits in groups by itself. When two transactions conflict (a deadlock, or a message that is removed between two
statements), the call is run again: nothing of it has happened.
"""

from asyncio import BaseTransport
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import asyncpg

from tidemill.tcp_connections import TcpTraffic, bytes_of_transport
from tidemill.timelines.core.backlog import Backlog
from tidemill.timelines.core.errors import StoreUnavailable
from tidemill.timelines.core.lease import Claim, Command, CommandOutcome, LeaseGrant
from tidemill.timelines.core.message import (
    COUNT_MAX,
    EVERYTHING,
    DueSpan,
    NewMessage,
    Scheduled,
    Selection,
    TimedMessage,
    TimelinePosition,
    check_find,
)
from tidemill.timelines.core.timeline import Catalogue, Step, TimelineInfo
from tidemill.timelines.postgres import backlog, reads, writes
from tidemill.timelines.postgres.schema import prepare, translated
from tidemill.timelines.postgres.sort import Sorter

CONNECTIONS_MAX = 8
CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 60.0
ATTEMPTS_MAX = 5
PLANNING = {"enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}
"""There is an index for every statement. The planner relies on old statistics, and would read a table that was empty
then, as `changed` often is, as a whole for each message. Through a bitmap, rows would be locked in the order of the
file, and two brokers might wait for each other; through an index they are locked in the order of their numbers.
"""

Result = TypeVar("Result")
Operation = Callable[[asyncpg.Connection], Awaitable[Result]]


class PostgresStore:
    """A TimelineStore on a PostgreSQL server."""

    def __init__(self, pool: asyncpg.Pool, traffic: TcpTraffic) -> None:
        self.sorter = Sorter(pool)
        self.traffic = traffic
        self._pool = pool

    async def catalogue(self) -> Catalogue:
        """All timelines and the server's clock."""
        catalogue = Catalogue(*await self._do(reads.timelines))
        self.sorter.now_ms = catalogue.now_ms
        return catalogue

    async def govern(self, step: Step) -> TimelineInfo | None:
        """Take one step in the lifecycle of a timeline."""
        return await self._do(lambda connection: writes.govern(connection, step))

    async def claim(self, timeline: TimelineInfo, owner: str, *, for_ms: int) -> bool:
        """Become or stay the only broker that finishes this creation or deletion."""
        return await self._do(lambda connection: writes.claim(connection, timeline, owner, for_ms))

    async def schedule(self, timeline: str, messages: Sequence[NewMessage]) -> list[Scheduled]:
        """Store the messages."""
        scheduled = await self._do(lambda connection: writes.schedule(connection, timeline, messages))
        self.sorter.scheduled(len(messages))
        return scheduled

    async def find(
        self,
        timeline: str,
        selection: Selection = EVERYTHING,
        *,
        now_ms: int,
        limit: int,
        after: TimelinePosition | None = None,
        bodies: bool = False,
    ) -> list[TimedMessage]:
        """The selected messages in order."""
        check_find(selection, limit)
        self.sorter.now_ms = now_ms
        return await self._do(
            lambda connection: reads.find(connection, timeline, selection, now_ms, limit, after, bodies=bodies)
        )

    async def acquire(
        self, timeline: str, claims: Sequence[Claim], *, now_ms: int, early_ms: int = 0
    ) -> list[LeaseGrant | None]:
        """Lease the claimed messages."""
        self.sorter.now_ms = now_ms
        return await self._do(lambda connection: writes.acquire(connection, timeline, claims, now_ms, early_ms))

    async def settle(self, timeline: str, commands: Sequence[Command], *, now_ms: int) -> list[CommandOutcome]:
        """Apply the commands that still hold."""
        return await self._do(lambda connection: writes.settle(connection, timeline, commands, now_ms))

    async def tally(
        self,
        timeline: str,
        selection: Selection = EVERYTHING,
        *,
        now_ms: int,
        bars: int = 1,
        bar_max: int = COUNT_MAX,
    ) -> list[int]:
        """Count the selected messages by due time."""
        return await self._do(lambda connection: reads.tally(connection, timeline, selection, now_ms, bars, bar_max))

    async def span(self, timeline: str) -> DueSpan | None:
        """The due times of the first and of the last message."""
        return await self._do(lambda connection: reads.span(connection, timeline))

    async def backlogs(self, *, now_ms: int) -> dict[str, Backlog]:
        """The backlog of every timeline that clients may use."""
        return await self._do(lambda connection: backlog.backlogs(connection, now_ms))

    async def close(self) -> None:
        """Wait for running calls and close the connections."""
        await self.sorter.close()
        await self._pool.close()

    async def _do(self, operation: Operation[Result]) -> Result:
        """Run the operation in a transaction; repeat it when it conflicted with another one."""
        with translated():
            for _ in range(ATTEMPTS_MAX):
                try:
                    async with self._pool.acquire(timeout=CONNECT_SECONDS) as connection, connection.transaction():
                        return await operation(connection)
                except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
                    continue
        raise StoreUnavailable(f"PostgreSQL: the call conflicted with others {ATTEMPTS_MAX} times; try again")


async def open_store(url: str) -> PostgresStore:
    """Connect, and create missing tables; StoreUnavailable when the server cannot be reached."""
    traffic = TcpTraffic()
    with translated():
        pool = await asyncpg.create_pool(
            url,
            connection_class=counted(traffic),
            min_size=0,
            max_size=CONNECTIONS_MAX,
            timeout=CONNECT_SECONDS,
            command_timeout=STATEMENT_SECONDS,
            server_settings=PLANNING,
        )
        try:
            async with pool.acquire() as connection:
                await prepare(connection)
        except BaseException:
            await pool.close()
            raise
    return PostgresStore(pool, traffic)


def counted(traffic: TcpTraffic) -> type[asyncpg.Connection]:
    """A class of connections whose bytes are counted."""

    class CountedConnection(asyncpg.Connection):  # type: ignore[misc] # untyped
        __slots__ = ()

        def __init__(self, protocol: Any, transport: BaseTransport, *more: Any) -> None:
            super().__init__(protocol, transport, *more)
            traffic.watch(lambda: bytes_of_transport(transport))

    return CountedConnection
