"""Probes a PostgreSQL address before a broker starts. It changes nothing there."""

from typing import NamedTuple

import asyncpg

from tidemill.timelines.postgres.schema import VERSION, translated

VISIT_SECONDS = 3.0


class PostgresProbe(NamedTuple):
    """A server, and the version of its tables: 0 when there are none yet."""

    server: str
    schema: int
    newest: int = VERSION


async def visit(url: str) -> PostgresProbe:
    """Probe the server; StoreUnavailable when it does not answer, or rejects the login."""
    with translated():
        connection = await asyncpg.connect(url, timeout=VISIT_SECONDS)
        try:
            server = await connection.fetchval("SHOW server_version")
            made = await connection.fetchval("SELECT to_regclass('tidemill.schema_version') IS NOT NULL")
            schema = await connection.fetchval("SELECT max(version) FROM tidemill.schema_version") if made else None
            return PostgresProbe(server, schema or 0)
        finally:
            await connection.close()
