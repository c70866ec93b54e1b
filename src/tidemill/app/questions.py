"""The desk for questions in SQL, made on the first one: its engine and libraries are loaded then and not before."""

import asyncio
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.app.engines import EMBEDDED, Tables, load_tables
from tidemill.broker.broker import Broker
from tidemill.broker.sql.desk import SqlDesk
from tidemill.broker.sql.errors import SqlRefused
from tidemill.broker.sql.guard import KnownFunction, Vocabulary
from tidemill.broker.sql.rows import ArrowRows, Loop
from tidemill.broker.sql.state import SHARED, State
from tidemill.broker.sql.tree import Node
from tidemill.settings import Settings

if TYPE_CHECKING:
    from tidemill.streams.clickhouse import EngineError, Questions

REASONS = {
    159: "the question took longer than tidemill.sql.timeout.ms allows",
    241: "the question needs more memory than tidemill.sql.max.memory.bytes allows",
    396: "the answer is larger than tidemill.sql.max.rows or tidemill.sql.max.bytes allows; add LIMIT, or count",
}
"""The engine's numbers for what our limits end."""
_TOLD = re.compile(r"(?:Code: \d+\. )?(?:DB::\w+: )")
_NOISE = re.compile(
    r"(.? In scope .*)|(. Expected one of: .*)|( \(version [\d.]+\))|(: While executing \w+)", re.DOTALL
)


class ChdbEngine:
    """`SqlEngine` in the embedded ClickHouse of this process."""

    def __init__(self, questions: "Questions", failures: "type[EngineError]", *, has_messages: bool) -> None:
        self.has_messages = has_messages
        self._questions = questions
        self._failures = failures

    async def vocabulary(self) -> Vocabulary:
        """The functions that may be called, of those that this engine has."""
        try:
            listed, combinators = await self._questions.functions(), await self._questions.combinators()
        except self._failures as error:
            raise _refusal(error) from None
        functions = [
            KnownFunction(
                each["name"],
                each["categories"],
                bool(each["is_aggregate"]),
                each["alias_to"],
                each["origin"] == "System",
            )
            for each in listed
        ]
        return Vocabulary(functions, combinators)

    async def parse(self, sql: str) -> Node:
        """The tree of one statement."""
        try:
            tree: Node = json.loads(await self._questions.parse(sql))
        except self._failures as error:
            raise _refusal(error) from None
        except RecursionError:
            raise SqlRefused("the question is nested too deeply") from None
        except UnicodeError:
            raise SqlRefused("a question is UTF-8 text; write other bytes as unhex('ff')") from None
        return tree

    async def write(self, tree: Node) -> str:
        """The text of a tree."""
        try:
            return await self._questions.write(json.dumps(tree))
        except self._failures as error:
            raise _refusal(error) from None

    async def run(self, sql: str, rows: Mapping[str, ArrowRows], form: str) -> bytes:
        """What a question finds."""
        try:
            return await self._questions.run(sql, rows, form)
        except self._failures as error:
            for failed in filter(None, (each.failed for each in rows.values())):
                raise SqlRefused(f"records cannot be read: {failed}") from None
            raise _refusal(error) from None

    async def close(self) -> None:
        """Let go of the engine."""
        await self._questions.close()


def _refusal(error: "EngineError") -> SqlRefused:
    if error.reason in REASONS:
        return SqlRefused(REASONS[error.reason])
    told = _TOLD.split(str(error))[-1]
    return SqlRefused(_NOISE.sub("", told).strip() or str(error))


def told(broker: Broker, table: str) -> bytes | None:
    """What this broker has of a table, as an Arrow stream; None when there is no such table."""
    if table not in SHARED:
        return None
    rows = State(broker, Loop(), broker.clock_ms).here(table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    found: bytes = sink.getvalue().to_pybytes()
    return found


async def open_desk(settings: Settings, tables: Tables, broker: Broker) -> SqlDesk:
    """A desk for one broker."""
    module = await asyncio.to_thread(load_tables)
    url = settings.streams if settings.streams.startswith(f"{EMBEDDED}:") else f"{EMBEDDED}:"
    limits = module.Limits(
        settings.broker.tidemill_sql_timeout_ms,
        settings.broker.tidemill_sql_max_memory_bytes,
        settings.broker.tidemill_sql_max_rows,
        settings.broker.tidemill_sql_max_bytes,
    )
    engine = ChdbEngine(
        module.Questions(module.parse(url, settings.data_dir), limits),
        module.EngineError,
        has_messages=tables.is_embedded(),
    )
    loop = Loop()
    servers = None if tables.is_embedded() else await tables.engine()
    return SqlDesk(engine, State(broker, loop, broker.clock_ms), loop, servers)
