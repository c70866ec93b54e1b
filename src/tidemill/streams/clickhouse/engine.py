"""Runs queries, inserts and commands on ClickHouse servers.

A process has one engine. It migrates the schema of a server before its first use, and again when a server that was
unreachable at start returns.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import pyarrow as pa
import structlog

from tidemill.model.storage_queries import QueryKind, StorageQueries
from tidemill.streams.clickhouse import schema
from tidemill.streams.clickhouse.client import Lane
from tidemill.streams.clickhouse.errors import EngineError, EngineRefused, EngineUnreachable
from tidemill.streams.clickhouse.query_kinds import MIGRATION, kind_of_insert, kind_of_statement
from tidemill.streams.clickhouse.statements import text
from tidemill.streams.clickhouse.url import BY_RANGE, Server, ServerLayout
from tidemill.streams.interface import StoreAway
from tidemill.tcp_connections import TcpTraffic

READ = "read"
WRITE = "write"
UPKEEP = "upkeep"
TOKEN = "insert_deduplication_token"  # noqa: S105 -- a server setting, not a secret
Parameters = Mapping[str, Any] | None
T = TypeVar("T")

log = structlog.get_logger("tidemill.streams")


class _Served:
    """One server: its lanes, and whether its tables are ready."""

    def __init__(self, layout: ServerLayout, place: int, traffic: TcpTraffic) -> None:
        server = layout.servers[place]
        self.lanes = {purpose: Lane(layout, server, purpose, traffic=traffic) for purpose in (READ, WRITE, UPKEEP)}
        self.ready = False
        self.away = False
        self.preparing = asyncio.Lock()


class Engine:
    """The servers of a layout, or the embedded one."""

    def __init__(self, layout: ServerLayout) -> None:
        self.layout = layout
        self.owner = ""  # the cluster that must own these tables
        self.outages = 0  # how often a server became unreachable or returned
        traffic = TcpTraffic()
        self.queries = StorageQueries(
            "chdb" if layout.embedded else "clickhouse",
            perf_counter,
            traffic=None if layout.embedded else traffic.totals,
        )
        self._served = [_Served(layout, place, traffic) for place in range(len(layout.servers))]

    def owner_of(self, partition: int, spread: int = BY_RANGE) -> int:
        """Return the index of the server that stores the partition of a topic with this `tidemill.spread.servers`."""
        return self.layout.owner_of(partition, spread)

    @property
    def servers(self) -> int:
        """How many servers there are."""
        return len(self._served)

    def is_away(self, server: int) -> bool:
        """Whether the server was unreachable at the last call."""
        return self._served[server].away

    async def ping(self, server: int) -> None:
        """Check whether the server responds."""
        await self.raw("SELECT 1", fmt="TabSeparated", server=server)

    async def prepare(self, server: int) -> None:
        """Migrate the tables of a server. Raise EngineError when it is unreachable."""
        served = self._served[server]
        if served.ready:
            return
        async with served.preparing:
            if not served.ready:
                await self._run(server, UPKEEP, MIGRATION, partial(_prepare, self.layout, server, self.owner))
                served.ready = True

    async def prepare_all(self) -> None:
        """Migrate the tables of all reachable servers."""
        results = await asyncio.gather(*map(self.prepare, range(len(self._served))), return_exceptions=True)
        for result in results:
            if isinstance(result, EngineUnreachable):
                log.warning("clickhouse_unreachable", error=str(result))
            elif isinstance(result, BaseException):
                raise result

    async def query(
        self, sql: str, parameters: Parameters = None, *, server: int = 0, settings: Parameters = None
    ) -> pa.Table:
        """Return the rows of a SELECT. Text columns arrive as bytes."""
        found = await self.raw(sql, parameters, fmt="ArrowStream", server=server, settings=settings)
        return pa.ipc.open_stream(found).read_all()

    async def raw(
        self, sql: str, parameters: Parameters = None, *, fmt: str, server: int = 0, settings: Parameters = None
    ) -> bytes:
        """Return the result of a SELECT in one of ClickHouse's formats."""
        await self.prepare(server)

        def ask(client: Any) -> bytes:
            client.database = self.layout.database
            found: bytes = client.raw_query(sql, parameters=parameters, fmt=fmt, settings=settings)
            return found

        return await self._run(server, READ, kind_of_statement(sql), ask)

    async def insert(
        self, table: str, rows: pa.RecordBatch, *, token: str, server: int = 0, query_id: str = ""
    ) -> None:
        """Store rows as one block. A repeat with the same token changes nothing."""
        await self.prepare(server)
        settings = {TOKEN: token, **({"query_id": query_id} if query_id else {})}

        def put(client: Any) -> None:
            client.database = self.layout.database
            client.raw_insert(table, rows.schema.names, _encoded(rows), fmt="ArrowStream", settings=settings)

        await self._run(server, WRITE, kind_of_insert(table), put)

    async def command(
        self, sql: str, parameters: Parameters = None, *, server: int = 0, settings: Parameters = None
    ) -> None:
        """Run a statement without a result: a definition, deletion or change."""
        await self.prepare(server)

        def do(client: Any) -> None:
            client.database = self.layout.database
            client.command(sql, parameters=parameters, settings=settings)

        await self._run(server, UPKEEP, kind_of_statement(sql), do)

    async def _run(self, server: int, lane: str, kind: QueryKind, call: Callable[[Any], T]) -> T:
        """Run a call on a lane, count it, and record from the outcome whether the server is reachable."""
        try:
            with self.queries.measured(kind):
                result = await self._served[server].lanes[lane].run(call)
        except EngineError as error:
            self._note(server, away=isinstance(error, StoreAway) and error.reason is None)
            raise
        self._note(server, away=False)
        return result

    def _note(self, server: int, *, away: bool) -> None:
        served = self._served[server]
        if served.away != away:
            served.away = away
            self.outages += 1
            event = "clickhouse_unreachable" if away else "clickhouse_reachable"
            log.warning(event, server=self.layout.servers[server].name)

    async def close(self) -> None:
        """Close the connections to all servers."""
        for served in self._served:
            for lane in served.lanes.values():
                await lane.close()


def _prepare(layout: ServerLayout, place: int, owner: str, client: Any) -> None:
    _migrate(layout, client)
    if layout.embedded:
        # The embedded engine uses the broker's clock, which may be wrong. Only the broker's retention deletes by time
        # here.
        client.command("SYSTEM STOP TTL MERGES")
        return
    server = layout.servers[place]
    if owner:
        _own(layout, server, owner, client)
    client.command(
        "INSERT INTO partition_mapping (low, high, place, version) "
        f"SELECT {server.low}, {server.high}, {place}, toUnixTimestamp64Milli(now64(3))"
    )
    rows = ", ".join(f"({at}, {text(each.name)}, {each.low}, {each.high})" for at, each in enumerate(layout.servers))
    client.command(
        "INSERT INTO partition_servers (place, server, low, high, version) SELECT at.1, at.2, at.3, at.4, "
        f"toUnixTimestamp64Milli(now64(3)) FROM (SELECT arrayJoin([{rows}]) AS at)"
    )


def _migrate(layout: ServerLayout, client: Any) -> None:
    for statement in schema.preparation(layout):
        client.command(statement)
    client.database = layout.database
    found = client.command("SELECT max(version) FROM schema_version")
    for statement in schema.steps(layout, int(found)):
        client.command(statement)


def _own(layout: ServerLayout, server: Server, owner: str, client: Any) -> None:
    """Record this cluster as the owner of unowned tables. Of all inserts with one token only the first is stored."""
    client.command(f"INSERT INTO owner (cluster_id) SETTINGS {TOKEN} = 'owner' VALUES ({text(owner)})")
    found = client.command("SELECT cluster_id FROM owner ORDER BY since LIMIT 1")
    if found != owner:
        raise EngineRefused(
            f"the database {layout.database} at {server.name} belongs to cluster {found}, this broker to {owner}; "
            "give all brokers that share it the same --coordination etcd://..., or name another database in --streams"
        )


def _encoded(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    found: bytes = sink.getvalue().to_pybytes()
    return found
