"""Runs SQL queries: parses and checks them, adds the broker's rows, and runs them with limits.

1. The engine's own parser turns the text into a tree (`SqlSession.parse`).
2. `allowlist` rejects everything that does more than read, and finds the tables that the query names.
   `visible_rows` decides which rows of them the client of the query gets.
3. Each table is replaced by a subquery over rows that the broker sends as Arrow (`rows`, `state_tables`, `table_rows`)
   while the engine reads. Only the broker itself writes the statements for a ClickHouse that stores records.
4. The tree is written as text again and run, with limits on time, memory, rows and bytes.

No text of a client reaches an engine in the broker's process: all four steps run in a query process.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import NamedTuple

from tidemill.security.client_rights import ClientRights
from tidemill.sql.core import allowlist, pruning
from tidemill.sql.core.allowlist import Reference, Vocabulary
from tidemill.sql.core.catalog import MESSAGES, TABLES, SqlTable, select_columns
from tidemill.sql.core.errors import TOO_SLOW, SqlBusy, SqlRefused
from tidemill.sql.core.pruning import NeededRows
from tidemill.sql.core.sql_query import FORMATS, SqlQuery
from tidemill.sql.core.syntax_tree import Node
from tidemill.sql.interface import SqlEngine, SqlSession
from tidemill.sql.remote_rows import RemoteRows
from tidemill.sql.rows import ArrowRows, Loop, PartitionRows, Range
from tidemill.sql.state_tables import StateTables
from tidemill.sql.table_rows import PLAIN, ServerRows, Servers
from tidemill.sql.visible_rows import VisibleRows
from tidemill.streams.partition import Partition

SQL_CHARS_MAX = 64 * 1024
WAITING_MAX = 16
"""The most queries that run or wait."""
GRACE_S = 1.0
"""The engine ends a query at its time limit. After this extra time, the query's process is killed."""
OpenTables = Callable[[], Awaitable[Servers]]
"""Opens the ClickHouse that stores records."""
COLUMNS = {name: table.column_names for name, table in TABLES.items()}


class _Needed(NamedTuple):
    """The columns and rows that a query needs of a table."""

    columns: tuple[str, ...]
    wanted: NeededRows


def _needed(tree: Node, reference: Reference) -> _Needed:
    columns = pruning.columns_in(tree, TABLES[reference.table].column_names) or ("offset",)
    return _Needed(columns, pruning.wanted(tree, reference))


class QueryExecutor:
    """Answers queries about one broker. Each runs in its own session, and a slow one does not block others."""

    def __init__(
        self,
        engine: SqlEngine,
        state: StateTables,
        loop: Loop,
        tables: OpenTables,
        *,
        queries_max: int,
        timeout_ms: int,
    ) -> None:
        self._engine = engine
        self._tables = tables
        self._state = state
        self._loop = loop
        self._timeout_s = timeout_ms / 1000 + GRACE_S
        self._vocabulary: Vocabulary | None = None
        self._turn = asyncio.Semaphore(queries_max)
        self._waiting = 0

    async def ask(self, query: SqlQuery, rights: ClientRights) -> bytes:
        """Return the result, or raise SqlRefused. Cancelling ends the query at once.

        The query sees the rows that the client has a right to. TopicAuthorizationFailed: it names another topic.
        """
        if query.form not in FORMATS:
            raise SqlRefused(f"format {query.form!r} does not exist; use one of {', '.join(FORMATS)}")
        if len(query.text) > SQL_CHARS_MAX:
            raise SqlRefused(f"the query has {len(query.text):,} characters; the limit is {SQL_CHARS_MAX:,}")
        text = query.text.rstrip().removesuffix(";")  # what is before it counts for the positions of errors
        if not text.strip():
            raise SqlRefused("the query is empty; try: SELECT * FROM partitions")
        if self._waiting >= WAITING_MAX:
            raise SqlBusy
        self._waiting += 1
        try:
            async with self._turn:
                return await self._in_session(query._replace(text=text), VisibleRows(rights))
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the running queries and the engine."""
        self._loop.close()
        await self._engine.close()

    async def _in_session(self, query: SqlQuery, visible: VisibleRows) -> bytes:
        session = await self._engine.acquire()
        try:
            if self._vocabulary is None:
                self._vocabulary = await session.vocabulary()
            async with asyncio.timeout(self._timeout_s):
                run = _Query(query, session, self._vocabulary, self._state, self._loop, self._tables, visible)
                return await run.answer()
        except TimeoutError:
            raise SqlRefused(TOO_SLOW) from None
        finally:
            session.release()


class _Query:
    """One query: it is checked, its tables are replaced by rows, and it is run."""

    def __init__(
        self,
        query: SqlQuery,
        session: SqlSession,
        vocabulary: Vocabulary,
        state: StateTables,
        loop: Loop,
        tables: OpenTables,
        visible: VisibleRows,
    ) -> None:
        self._asked = query
        self._engine = session
        self._vocabulary = vocabulary
        self._state = state
        self._loop = loop
        self._tables = tables
        self._visible = visible
        self._names = (f"tidemill_rows_{number}" for number in count())

    async def answer(self) -> bytes:
        """Return the result of the query."""
        query = self._asked
        tree = await self._engine.parse(query.text)
        references = allowlist.check(tree, self._vocabulary, COLUMNS)
        rows: dict[str, ArrowRows] = {}
        await self._put_in_all(tree, references, rows)
        sql = await self._engine.write(tree)
        return await self._engine.run(sql, rows, FORMATS[query.form], query.result_settings)

    async def _put_in_all(self, tree: Node, references: list[Reference], rows: dict[str, ArrowRows]) -> None:
        """Replace the names of tables by their rows. The whole tree decides which rows and columns are needed."""
        needed = [_needed(tree, reference) for reference in references]
        for reference, each in zip(references, needed, strict=True):
            reference.replace(await self._source(TABLES[reference.table], each, rows))

    async def _source(self, table: SqlTable, needed: _Needed, rows: dict[str, ArrowRows]) -> Node:
        if table.made_by:
            inner = await self._engine.parse(table.made_by)
            await self._put_in_all(inner, allowlist.references(inner, TABLES), rows)
            return inner
        if table.name == MESSAGES:
            return await self._engine.parse(await self._messages(needed, rows))
        name = next(self._names)
        rows[name] = await self._state.rows(table.name, self._visible)
        return await self._engine.parse(select_columns(table, table.column_names, f"python({name})"))

    async def _messages(self, needed: _Needed, rows: dict[str, ArrowRows]) -> str:
        """Return the subquery for records: rows of tables in ClickHouse, and records of all other partitions."""
        table, columns, wanted = TABLES[MESSAGES], needed.columns, needed.wanted
        if wanted.topics is not None:
            self._visible.check_named(wanted.topics)
        places = [place for place in self._state.readable_places(self._visible) if wanted.has(*place)]
        led = {place: found for place in places if (found := self._state.led_here(place)) is not None}
        streamed = list(led.values())
        elsewhere = [place for place in places if place not in led]
        selects: list[str] = []
        since_ms = await self._since_ms(wanted.since) if streamed or elsewhere else 0
        part = Range(since_ms, wanted.first_offset, wanted.end_offset, self._asked.skip_unreadable)
        if elsewhere:
            name = next(self._names)
            rows[name] = RemoteRows(self._state.elsewhere(), elsewhere, columns, part).rows
            selects.append(select_columns(table, columns, f"python({name})"))
        counted = [each for each in streamed if self._in_tables(each)] if set(columns) <= PLAIN else []
        if counted:
            streamed = [each for each in streamed if each not in counted]
            name = next(self._names)
            rows[name] = ServerRows(self._loop, await self._tables(), counted, columns, part).rows
            selects.append(select_columns(table, columns, f"python({name})"))
        if streamed or not selects:
            name = next(self._names)
            rows[name] = PartitionRows(self._loop, streamed, columns, part).rows
            selects.append(select_columns(table, columns, f"python({name})"))
        return " UNION ALL ".join(selects)

    def _in_tables(self, partition: Partition) -> bool:
        return self._state.storage_of(partition) == "clickhouse"

    async def _since_ms(self, bound: Node | None) -> int:
        """Return the earliest timestamp that the query needs; 0 when that is unknown."""
        if bound is None:
            return 0
        asked = await self._engine.parse("SELECT toUnixTimestamp64Milli(toDateTime64(1, 3, 'UTC')), toTypeName(1)")
        select = asked["list_of_selects"]["children"][0]["select"]["children"]
        select[0]["arguments"]["children"][0]["arguments"]["children"][0] = bound
        select[1]["arguments"]["children"][0] = bound
        try:
            found = await self._engine.run(await self._engine.write(asked), {}, "TabSeparatedRaw")
            at_ms, kind = found.decode().strip().split("\t")
            return int(at_ms) if kind.startswith(("Date", "String")) else 0
        except (SqlRefused, ValueError):
            return 0
