"""Runs queries, inserts and commands on ClickHouse servers.

A process has one engine. It migrates the schema of a server before its first use, and again when a server that was
unreachable at start returns.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import pyarrow as pa
import structlog

from tidemill.model.storage_queries import QueryKind, StorageQueries
from tidemill.streams.clickhouse import schema, takeover
from tidemill.streams.clickhouse.client import Lane
from tidemill.streams.clickhouse.errors import EngineError, EngineRefused, EngineUnreachable
from tidemill.streams.clickhouse.query_kinds import MIGRATION, kind_of_insert, kind_of_statement
from tidemill.streams.clickhouse.range_failover import RangeFailover, RangeOwner
from tidemill.streams.clickhouse.statements import text
from tidemill.streams.clickhouse.takeover import TOKEN, Ownership
from tidemill.streams.clickhouse.url import BY_RANGE, Server, ServerLayout
from tidemill.streams.interface import StoreAway
from tidemill.tcp_connections import TcpTraffic

LOOK_S = 0.2
READ = "read"
WRITE = "write"
UPKEEP = "upkeep"
_OWNER_IN_DOUBT = frozenset({242, 395})
"""Error codes of an owner that another one may have replaced: it is read-only, or rejects rows of this ownership."""
Parameters = Mapping[str, Any] | None
T = TypeVar("T")

log = structlog.get_logger("tidemill.streams")


class _Served:
    """One server: its lanes, and whether its tables are ready."""

    def __init__(self, layout: ServerLayout, place: int, traffic: TcpTraffic) -> None:
        self._layout = layout
        self._traffic = traffic
        self.server = layout.servers[place]
        self.lanes = self._connect()
        self.ready = False
        self.away = False
        self.preparing = asyncio.Lock()
        self.failover: RangeFailover | None = None
        self.look: asyncio.Task[None] | None = None

    def use(self, server: Server) -> list[Lane]:
        """Send further calls to another server, and return the lanes to close."""
        if server == self.server:
            return []
        old, self.server = list(self.lanes.values()), server
        self.lanes = self._connect()
        return old

    def _connect(self) -> dict[str, Lane]:
        return {
            purpose: Lane(self._layout, self.server, purpose, traffic=self._traffic)
            for purpose in (READ, WRITE, UPKEEP)
        }


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
        for place, server in enumerate(layout.servers):
            if server.replicas:
                self._served[place].failover = RangeFailover(layout, server, partial(self._moved, place))
        self._tasks: set[asyncio.Task[None]] = set()

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

    def ownership(self, server: int) -> int:
        """The ownership of its range under which rows are inserted on a server; 0 without replicas."""
        failover = self._served[server].failover
        return 0 if failover is None or failover.owner is None else failover.owner.ownership.number

    def check_reachable(self, server: int) -> None:
        """Raise EngineUnreachable for a server that did not answer the last call, and look whether it answers now.

        So a producer gets its error at once, and does not wait for a connection that times out.
        """
        served = self._served[server]
        if not served.away:
            return
        if served.look is None or served.look.done():
            served.look = self._spawn(self._look(server))
        raise EngineUnreachable(f"ClickHouse at {served.server.name} does not answer; retry when it does")

    async def _look(self, server: int) -> None:
        with suppress(EngineError):
            await self.ping(server)
        await asyncio.sleep(LOOK_S)

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
                await self._prepare(server, served)
                served.ready = True

    async def _prepare(self, server: int, served: _Served) -> None:
        failover = served.failover
        if failover is not None:
            place = await failover.locate()
            self._close_lanes(served.use(self.layout.servers[server].candidates[place]))
        prepare = partial(_prepare, self.layout, server, self.owner, served.server, self._owners())
        ownership = await self._run(server, UPKEEP, MIGRATION, prepare)
        if failover is not None and ownership is not None:
            failover.prepared(place, ownership)

    def _owners(self) -> list[str]:
        """The address of the server that owns each range now."""
        return [served.server.name for served in self._served]

    def _moved(self, server: int, owner: RangeOwner) -> None:
        """Use the new owner of a range."""
        served = self._served[server]
        self._close_lanes(served.use(self.layout.servers[server].candidates[owner.place]))
        self.outages += 1
        served.away = False
        served.ready = True  # a take-over checks the version of the tables
        self._spawn(self._publish_owners())

    async def _publish_owners(self) -> None:
        """Write the owners to all servers, for people."""
        publish = partial(takeover.publish_mapping, self.layout, self._owners())
        ready = [server for server, served in enumerate(self._served) if served.ready and not served.away]
        results = (self._run(server, UPKEEP, MIGRATION, publish) for server in ready)
        for result in await asyncio.gather(*results, return_exceptions=True):
            if isinstance(result, EngineError):
                log.warning("clickhouse_mapping_not_written", error=str(result))

    def _close_lanes(self, lanes: list[Lane]) -> None:
        """Close lanes after their calls, which may take a while if their server is lost."""
        for lane in lanes:
            self._spawn(lane.close())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def prepare_all(self) -> None:
        """Migrate the tables of all reachable servers."""
        results = await asyncio.gather(*map(self.prepare, range(len(self._served))), return_exceptions=True)
        for result, served in zip(results, self._served, strict=True):
            if isinstance(result, EngineUnreachable) or (served.failover is not None and _is_in_doubt(result)):
                log.warning("clickhouse_unreachable", error=str(result))
            elif isinstance(result, BaseException):
                raise result
        if self.layout.replicated:
            await self._publish_owners()

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
        served = self._served[server]
        lanes = served.lanes
        try:
            with self.queries.measured(kind):
                result = await lanes[lane].run(call)
        except EngineError as error:
            if lanes is served.lanes:  # otherwise another server owns the range now
                self._note(server, away=isinstance(error, StoreAway) and error.reason is None)
                if served.failover is not None and _is_in_doubt(error):
                    served.failover.doubt()
            raise
        if lanes is served.lanes:
            self._note(server, away=False)
        return result

    def _note(self, server: int, *, away: bool) -> None:
        served = self._served[server]
        if served.away != away:
            served.away = away
            self.outages += 1
            event = "clickhouse_unreachable" if away else "clickhouse_reachable"
            log.warning(event, server=served.server.name)

    async def close(self) -> None:
        """Close the connections to all servers."""
        for served in self._served:
            if served.failover is not None:
                await served.failover.close()
            for lane in served.lanes.values():
                await lane.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _is_in_doubt(error: BaseException | None) -> bool:
    """Whether another replica may own the range."""
    return isinstance(error, StoreAway) or (isinstance(error, EngineError) and error.reason in _OWNER_IN_DOUBT)


def _prepare(
    layout: ServerLayout, place: int, owner: str, server: Server, owners: list[str], client: Any
) -> Ownership | None:
    """Migrate the tables of a server, and note what it owns. The result is the ownership of a range with replicas."""
    _migrate(layout, client)
    if layout.embedded:
        # The embedded engine uses the broker's clock, which may be wrong. Only the broker's retention deletes by time
        # here.
        client.command("SYSTEM STOP TTL MERGES")
        return None
    if owner:
        _own(layout, server, owner, client)
    ownership = takeover.first_ownership(layout, server, client) if server.replicas else None
    client.command(
        "INSERT INTO partition_mapping (low, high, place, version) "
        f"SELECT {server.low}, {server.high}, {place}, toUnixTimestamp64Milli(now64(3))"
    )
    takeover.publish_mapping(layout, owners, client)
    return ownership


def _migrate(layout: ServerLayout, client: Any) -> None:
    # With ON CLUSTER a statement waits for every server, also for one that is down, so none is run without need.
    where = f"database = {text(layout.database)} AND name = 'schema_version'"
    if not int(client.command(f"SELECT count() FROM system.tables WHERE {where}")):
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
