"""Inspects ClickHouse servers without using them: their version, and the version of their tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.streams.clickhouse.client import connect, translate
from tidemill.streams.clickhouse.errors import EngineError
from tidemill.streams.clickhouse.schema import VERSION, quoted
from tidemill.streams.clickhouse.statements import text
from tidemill.streams.clickhouse.url import Server, ServerLayout, parse


class ServerProbe(NamedTuple):
    """The result for one server: its version and its schema version (0: no tables), or the problem."""

    name: str
    version: str = ""
    schema: int = 0
    newest: int = VERSION
    problem: str = ""


def visit(url: str) -> Iterator[ServerProbe]:
    """Yield the result for each server of a URL. Nothing is changed."""
    layout = parse(url, Path())
    for server in (each for owner in layout.servers for each in owner.candidates):
        try:
            yield _look(layout, server)
        except EngineError as error:
            yield ServerProbe(server.name, problem=str(error))


def _look(layout: ServerLayout, server: Server) -> ServerProbe:
    client: Any = None
    try:
        client = connect(layout, server, {})
        version = str(client.command("SELECT version()"))
        where = f"database = {text(layout.database)} AND name = 'schema_version'"
        there = int(client.command(f"SELECT count() FROM system.tables WHERE {where}"))
        table = f"{quoted(layout.database)}.schema_version"
        schema = int(client.command(f"SELECT max(version) FROM {table}")) if there else 0
        return ServerProbe(server.name, version, schema)
    except Exception as error:
        raise translate(error, server) from error
    finally:
        if client is not None:
            client.close()
