"""Questions to the embedded engine by people: on a connection of their own, which can change nothing and has limits.

What a question may say is looked at before it comes here. What it cannot do even so is settled by this connection:
`readonly` is on for good (2 and not 1, since rows come in by a table function, which 1 refuses with all others), and
time, memory, rows and bytes are bounded by settings.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidemill.streams.clickhouse.client import Lane
from tidemill.streams.clickhouse.errors import EngineRefused
from tidemill.streams.clickhouse.url import Layout

THREADS_MAX = 2
"""Clients of the broker are served beside a question."""
TOO_MANY_ROWS_OR_BYTES = 396
_FUNCTIONS = "SELECT name, categories, is_aggregate, alias_to, origin FROM system.functions"
_COMBINATORS = "SELECT name FROM system.aggregate_function_combinators"


class Limits(NamedTuple):
    """What one question may take."""

    timeout_ms: int
    memory_bytes: int
    rows: int
    answer_bytes: int

    def settings(self) -> dict[str, Any]:
        """The same in the engine's words; the last one keeps all others as they are."""
        return {
            "max_execution_time": self.timeout_ms / 1000,
            "timeout_before_checking_execution_speed": 0,
            "max_memory_usage": self.memory_bytes,
            "max_bytes_before_external_group_by": self.memory_bytes // 2,
            "max_bytes_before_external_sort": self.memory_bytes // 2,
            "max_result_rows": self.rows,
            "max_result_bytes": self.answer_bytes,
            "result_overflow_mode": "throw",
            "max_threads": THREADS_MAX,
            "allow_introspection_functions": 0,
            "output_format_json_quote_64bit_integers": 0,
            "output_format_json_validate_utf8": 1,
            "readonly": 2,
        }


class Questions:
    """One question after the other; errors are those of `errors`."""

    def __init__(self, layout: Layout, limits: Limits) -> None:
        self._limits = limits
        self._lane = Lane(layout, layout.servers[0], "sql", limits.settings())

    async def functions(self) -> list[dict[str, Any]]:
        """Every function that the engine has."""
        found: list[dict[str, Any]] = json.loads(await self._ask(_FUNCTIONS, "JSON"))["data"]
        return found

    async def combinators(self) -> list[str]:
        """What the name of an aggregate may end with."""
        return (await self._ask(_COMBINATORS, "TabSeparatedRaw")).decode().split()

    async def parse(self, sql: str) -> str:
        """The tree of a statement, as JSON. The text is a value here and is not run."""
        found = await self._ask("SELECT parseQueryToJSON({text:String})", "TabSeparatedRaw", {"text": sql})
        return found.decode()

    async def write(self, tree: str) -> str:
        """The statement of a tree."""
        found = await self._ask("SELECT formatQueryFromJSON({text:String})", "TabSeparatedRaw", {"text": tree})
        return found.decode().strip()

    async def run(self, sql: str, rows: Mapping[str, Any], form: str) -> bytes:
        """What a SELECT finds; `python(name)` in it stands for rows of that name."""

        def ask(client: Any) -> bytes:
            # The engine finds rows by their names among the globals of its callers.
            globals().update(rows)
            try:
                found: bytes = client.raw_query(sql, fmt=form)
            finally:
                for name in rows:
                    del globals()[name]
            if len(found) > self._limits.answer_bytes:
                raise _too_large()  # a column that is the same in all rows counts once for the engine
            return found

        return await self._lane.run(ask)

    async def close(self) -> None:
        """Let go of the connection when the question that runs has ended."""
        await self._lane.close()

    async def _ask(self, sql: str, form: str, parameters: Mapping[str, Any] | None = None) -> bytes:
        def ask(client: Any) -> bytes:
            found: bytes = client.raw_query(sql, parameters=parameters, fmt=form)
            return found

        return await self._lane.run(ask)


def _too_large() -> EngineRefused:
    error = EngineRefused("the answer is too large")
    error.reason = TOO_MANY_ROWS_OR_BYTES
    return error
