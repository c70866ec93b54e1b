"""The desk where questions are answered: parsed, looked through, joined with the broker's rows, run with limits.

1. The engine's own parser makes a tree of the text (`SqlEngine.parse`).
2. `guard` refuses what does more than read, and finds the tables that the question names.
3. Each of them is replaced by a question of our own that tells its rows: records in tables of this process are read
   where they are, all others come through Arrow while the engine reads (`rows`, `state`).
4. The tree is written as text again and run, with limits on time, memory, rows and bytes.

One question runs at a time; some may wait.
"""

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

from tidemill.broker.sql import guard, pruning
from tidemill.broker.sql.catalog import MESSAGES, TABLES, Table, telling
from tidemill.broker.sql.elsewhere import RowsElsewhere
from tidemill.broker.sql.errors import SqlBusy, SqlRefused
from tidemill.broker.sql.guard import Reference, Vocabulary
from tidemill.broker.sql.interface import SqlEngine
from tidemill.broker.sql.pruning import Wanted
from tidemill.broker.sql.rows import ArrowRows, Loop, PartitionRows, Range
from tidemill.broker.sql.state import State
from tidemill.broker.sql.stored import PLAIN, ServerRows, Servers, stored
from tidemill.broker.sql.tree import Node
from tidemill.streams.partition import Partition

FORMATS: Mapping[str, str] = {"json": "JSONCompact", "csv": "CSVWithNames", "parquet": "Parquet"}
SQL_CHARS_MAX = 64 * 1024
WAITING_MAX = 16
COLUMNS = {name: table.column_names for name, table in TABLES.items()}


class _Needed(NamedTuple):
    """What a question needs of a table."""

    columns: tuple[str, ...]
    wanted: Wanted


def _needed(tree: Node, reference: Reference) -> _Needed:
    columns = pruning.columns_in(tree, TABLES[reference.table].column_names) or ("offset",)
    return _Needed(columns, pruning.wanted(tree, reference))


class SqlDesk:
    """Answers questions about one broker."""

    def __init__(self, engine: SqlEngine, state: State, loop: Loop, servers: Servers | None = None) -> None:
        self._engine = engine
        self._servers = servers
        self._state = state
        self._loop = loop
        self._vocabulary: Vocabulary | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._names = (f"tidemill_rows_{number}" for number in count())

    async def ask(self, sql: str, form: str = "json", *, skip_unreadable: bool = False) -> bytes:
        """The answer in one of FORMATS; SqlRefused says why there is none.

        A record batch that cannot be read ends the query, unless `skip_unreadable` leaves it out.
        """
        if form not in FORMATS:
            raise SqlRefused(f"there is no format {form!r}; there is {', '.join(FORMATS)}")
        if len(sql) > SQL_CHARS_MAX:
            raise SqlRefused(f"a question has at most {SQL_CHARS_MAX:,} characters")
        if self._waiting >= WAITING_MAX:
            raise SqlBusy
        self._waiting += 1
        try:
            async with self._turn:
                return await self._answer(sql.strip().removesuffix(";"), FORMATS[form], skip_unreadable)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the question that runs, and let go of the engine."""
        self._loop.close()
        await self._engine.close()

    async def _answer(self, sql: str, form: str, skip: bool) -> bytes:
        if not sql:
            raise SqlRefused("there is no question; try: SELECT * FROM partitions")
        if self._vocabulary is None:
            self._vocabulary = await self._engine.vocabulary()
        tree = await self._engine.parse(sql)
        references = guard.check(tree, self._vocabulary, COLUMNS)
        rows: dict[str, ArrowRows] = {}
        await self._put_in_all(tree, references, rows, skip)
        return await self._engine.run(await self._engine.write(tree), rows, form)

    async def _put_in_all(
        self, tree: Node, references: list[Reference], rows: dict[str, ArrowRows], skip: bool
    ) -> None:
        """Put the rows of tables in the place of their names; what is needed of them is told by the whole tree."""
        needed = [_needed(tree, reference) for reference in references]
        for reference, each in zip(references, needed, strict=True):
            reference.replace(await self._source(TABLES[reference.table], each, rows, skip))

    async def _source(self, table: Table, needed: _Needed, rows: dict[str, ArrowRows], skip: bool) -> Node:
        if table.made_by:
            inner = await self._engine.parse(table.made_by)
            await self._put_in_all(inner, guard.references(inner, TABLES), rows, skip)
            return inner
        if table.name == MESSAGES:
            return await self._engine.parse(await self._messages(needed, rows, skip))
        name = next(self._names)
        rows[name] = await self._state.rows(table.name)
        return await self._engine.parse(telling(table, table.column_names, f"python({name})"))

    async def _messages(self, needed: _Needed, rows: dict[str, ArrowRows], skip: bool) -> str:
        """The question that tells records: rows of this process's tables, and what other partitions hold."""
        table, columns, wanted = TABLES[MESSAGES], needed.columns, needed.wanted
        places = [place for place in self._state.places() if wanted.has(*place)]
        led = {place: found for place in places if (found := self._state.led_here(place)) is not None}
        here = [each for each in led.values() if self._engine.has_messages and self._in_tables(each)]
        streamed = [each for each in led.values() if each not in here]
        elsewhere = [place for place in places if place not in led]
        questions = [stored(here, columns)] if here else []
        since_ms = await self._since_ms(wanted.since) if streamed or elsewhere else 0
        part = Range(since_ms, wanted.first_offset, wanted.end_offset, skip)
        if elsewhere:
            name = next(self._names)
            rows[name] = RowsElsewhere(self._state.bootstrap(), elsewhere, columns, part).rows
            questions.append(telling(table, columns, f"python({name})"))
        if self._servers is not None and set(columns) <= PLAIN:
            counted = [each for each in streamed if self._in_tables(each)]
            streamed = [each for each in streamed if each not in counted]
            name = next(self._names)
            rows[name] = ServerRows(self._loop, self._servers, counted, columns, part).rows
            questions.append(telling(table, columns, f"python({name})"))
        if streamed or not questions:
            name = next(self._names)
            rows[name] = PartitionRows(self._loop, streamed, columns, part).rows
            questions.append(telling(table, columns, f"python({name})"))
        return " UNION ALL ".join(questions)

    def _in_tables(self, partition: Partition) -> bool:
        return self._state.storage_of(partition) == "clickhouse"

    async def _since_ms(self, bound: Node | None) -> int:
        """The first time of interest; 0 when that cannot be told."""
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
