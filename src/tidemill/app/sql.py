"""Connects the SQL query executor to the broker and to query processes.

The node imports this module at the first query, because the engine and its libraries are slow to load.
"""

import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from tidemill.app.engines import Tables
from tidemill.app.lazy_sql import NO_ENGINE
from tidemill.broker.broker import BrokerNode
from tidemill.broker.peer_access import peer_access
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import InvalidConfig
from tidemill.query_engine.confinement import is_supported
from tidemill.query_engine.process import (
    Allowance,
    QueryFailed,
    QueryProcess,
    QueryProcessEnded,
    QueryProcesses,
    SandboxMissing,
)
from tidemill.security.client_rights import ClientRights
from tidemill.settings import Settings
from tidemill.sql.core.allowlist import KnownFunction, Vocabulary
from tidemill.sql.core.errors import TOO_SLOW, SqlRefused, SqlUnavailable
from tidemill.sql.core.syntax_tree import Node
from tidemill.sql.query_executor import QueryExecutor
from tidemill.sql.rows import ArrowRows, Loop
from tidemill.sql.state_tables import SHARED, StateTables
from tidemill.sql.visible_rows import VisibleRows

# pyarrow imports pandas when it creates its first value, which takes 0.3 s. Do it in the thread of this import.
pa.scalar(0)

THREADS_MAX = 2
NO_SANDBOX = (
    "SQL needs a sandbox for its process (seccomp on Linux, x86-64 or arm64), which this system does not have; "
    "to run queries without one, set tidemill.sql.sandbox.required=false"
)

REASONS = {
    159: TOO_SLOW,
    241: "the query needs more memory than tidemill.sql.max.memory.bytes allows",
    396: "the result is larger than tidemill.sql.max.rows or tidemill.sql.max.bytes allows; add LIMIT, or count",
}
"""The engine's error codes for queries that exceed our limits."""
_ERROR_PREFIX = re.compile(r"(?:Code: \d+\. )?(?:DB::\w+: )")
_NOISE = re.compile(
    r"(.? In scope .*)|(. Expected one of: .*)|( \(version [\d.]+\))|(: While executing \w+)", re.DOTALL
)


class ProcessSession:
    """A `SqlSession` in a query process."""

    def __init__(self, processes: QueryProcesses, process: QueryProcess, result_bytes: int) -> None:
        self._processes = processes
        self._process = process
        self._result_bytes = result_bytes

    async def vocabulary(self) -> Vocabulary:
        """The functions of the engine that queries may call."""
        listed = json.loads(await self._call({"what": "functions"}))["data"]
        combinators = (await self._call({"what": "combinators"})).decode().split()
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
        """Parse one statement into a syntax tree."""
        found = await self._call({"what": "parse", "text": sql})
        try:
            tree: Node = json.loads(found)
        except RecursionError:
            raise SqlRefused("the query is nested too deeply; split it into simpler queries") from None
        except UnicodeError:
            raise SqlRefused("the query is not UTF-8 text; write other bytes as unhex('ff')") from None
        return tree

    async def write(self, tree: Node) -> str:
        """Format a syntax tree as SQL."""
        return (await self._call({"what": "write", "text": json.dumps(tree)})).decode().strip()

    async def run(
        self, sql: str, rows: Mapping[str, ArrowRows], form: str, settings: Mapping[str, int] | None = None
    ) -> bytes:
        """Run a query and return its result in the format `form`."""
        request = {
            "what": "run",
            "sql": sql,
            "form": form,
            "rows": list(rows),
            "bytes_max": self._result_bytes,
            "settings": dict(settings or {}),
        }
        try:
            return await self._call(request, rows)
        except SqlRefused:
            for failed in filter(None, (each.failed for each in rows.values())):
                raise SqlRefused(f"records cannot be read: {failed}") from None
            raise

    def release(self) -> None:
        """Return the process to the pool."""
        self._processes.release(self._process)

    async def _call(self, request: Mapping[str, Any], rows: Mapping[str, ArrowRows] | None = None) -> bytes:
        try:
            return await self._process.call(request, rows)
        except QueryFailed as error:
            raise _refusal(error) from None
        except QueryProcessEnded as error:
            raise SqlRefused(f"{error}; other queries are not affected") from None


class ProcessEngine:
    """A `SqlEngine` of query processes."""

    def __init__(self, processes: QueryProcesses, result_bytes: int) -> None:
        self._processes = processes
        self._result_bytes = result_bytes

    async def acquire(self) -> ProcessSession:
        """A session in a process that is ready."""
        try:
            return ProcessSession(self._processes, await self._processes.acquire(), self._result_bytes)
        except SandboxMissing:
            raise SqlUnavailable(NO_SANDBOX) from None
        except QueryProcessEnded as error:
            raise SqlUnavailable(str(error)) from None

    async def close(self) -> None:
        """End all processes."""
        await self._processes.close()


def _refusal(error: QueryFailed) -> SqlRefused:
    if error.code in REASONS:
        return SqlRefused(REASONS[error.code])
    text = _ERROR_PREFIX.split(str(error))[-1]
    return SqlRefused(" ".join((_NOISE.sub("", text).strip() or str(error)).split()))


def state_table(broker: BrokerNode, table: str, rights: ClientRights) -> bytes | None:
    """The rows of a table that this broker has and a client may see, as an Arrow stream. None: there is no table."""
    if table not in SHARED:
        return None
    rows = StateTables(broker, Loop(), broker.clock_ms, peer_access(broker)).here(table, VisibleRows(rights))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def engine_settings(limits: BrokerSettings) -> dict[str, Any]:
    """The limits as engine settings. Spilling to files is off, because the query process cannot write files."""
    return {
        "max_execution_time": limits.tidemill_sql_timeout_ms / 1000,
        "timeout_before_checking_execution_speed": 0,
        "max_memory_usage": limits.tidemill_sql_max_memory_bytes,
        "max_bytes_before_external_group_by": 0,
        "max_bytes_before_external_sort": 0,
        "max_bytes_ratio_before_external_group_by": 0,
        "max_bytes_ratio_before_external_sort": 0,
        "max_result_rows": limits.tidemill_sql_max_rows,
        "max_result_bytes": limits.tidemill_sql_max_bytes,
        "result_overflow_mode": "throw",
        "max_threads": THREADS_MAX,
        "allow_introspection_functions": 0,
        "output_format_json_validate_utf8": 1,
        # 1 would reject the table function that reads the rows. It is the last entry because it keeps the others as
        # they are.
        "readonly": 2,
    }


async def open_executor(settings: Settings, tables: Tables, broker: BrokerNode) -> QueryExecutor:
    """Open the query executor of one broker."""
    if find_spec("chdb") is None:
        raise InvalidConfig(NO_ENGINE)
    if settings.broker.tidemill_sql_sandbox_required and not is_supported():
        raise InvalidConfig(NO_SANDBOX)
    limits = settings.broker
    allowance = Allowance(limits.tidemill_sql_max_memory_bytes, limits.tidemill_sql_max_bytes, engine_settings(limits))
    processes = QueryProcesses(allowance, sandbox_required=limits.tidemill_sql_sandbox_required)
    loop = Loop()
    return QueryExecutor(
        ProcessEngine(processes, limits.tidemill_sql_max_bytes),
        StateTables(broker, loop, broker.clock_ms, peer_access(broker)),
        loop,
        tables.engine,
        queries_max=limits.tidemill_sql_max_queries,
        timeout_ms=limits.tidemill_sql_timeout_ms,
    )
