"""A look at servers by somebody who does not serve: what answers where, and whose tables are there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.streams.clickhouse.client import connect, translate
from tidemill.streams.clickhouse.errors import EngineError
from tidemill.streams.clickhouse.schema import VERSION, quoted
from tidemill.streams.clickhouse.statements import text
from tidemill.streams.clickhouse.url import Server, ServerLayout, parse


class ServerProbe(NamedTuple):
    """What was found at one server: its version and that of its tables (0: there are none), or what is wrong."""

    name: str
    version: str = ""
    schema: int = 0
    newest: int = VERSION
    problem: str = ""


def visit(url: str) -> Iterator[ServerProbe]:
    """Each server of a URL; nothing is changed."""
    layout = parse(url, Path())
    for server in layout.servers:
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
