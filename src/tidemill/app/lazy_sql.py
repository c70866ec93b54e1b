"""SQL of one node. The query executor, its engine and their libraries are slow to load: the first query loads them."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

from tidemill.app.engines import Tables
from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import InvalidConfig
from tidemill.security.client_rights import ClientRights
from tidemill.settings import Settings
from tidemill.sql.core.errors import SqlUnavailable
from tidemill.sql.core.sql_query import SqlQuery

if TYPE_CHECKING:
    from tidemill.sql.query_executor import QueryExecutor

LIBRARIES = ("chdb", "pyarrow")
SQL_MODULE = "tidemill.app.sql"
NO_ENGINE = "SQL needs more packages; install them with: pip install 'tidemill[clickhouse]'"


class LazySql:
    """Runs the queries of clients."""

    def __init__(self, settings: Settings, tables: Tables, broker: Callable[[], BrokerNode]) -> None:
        self._settings = settings
        self._tables = tables
        self._broker = broker
        self._opening: asyncio.Task[QueryExecutor] | None = None

    def problem(self) -> str | None:
        """Why no query can run; None if nothing is missing."""
        return NO_ENGINE if any(find_spec(each) is None for each in LIBRARIES) else None

    async def ask(self, query: SqlQuery, rights: ClientRights) -> bytes:
        """The result of a query of a client."""
        opening = self._opening = self._opening or asyncio.create_task(self._open())
        try:
            executor = await asyncio.shield(opening)
        except Exception as error:
            if self._opening is opening:  # the next query tries again
                self._opening = None
            if isinstance(error, InvalidConfig):
                raise SqlUnavailable(str(error)) from None
            raise
        return await executor.ask(query, rights)

    async def table(self, name: str, rights: ClientRights) -> bytes | None:
        """The rows that this broker has of a table, for a query on another broker; None if there is no such table."""
        found: bytes | None = (await _sql_module()).state_table(self._broker(), name, rights)
        return found

    async def close(self) -> None:
        """End the running queries and the engine."""
        if self._opening is not None:
            await (await self._opening).close()

    async def _open(self) -> "QueryExecutor":
        module = await _sql_module()
        executor: QueryExecutor = await module.open_executor(self._settings, self._tables, self._broker())
        return executor


async def _sql_module() -> ModuleType:
    """The module; SqlUnavailable without the optional packages that it needs."""
    try:
        return await asyncio.to_thread(import_module, SQL_MODULE)
    except ModuleNotFoundError as error:
        raise SqlUnavailable(f"{NO_ENGINE} ({error})") from None
