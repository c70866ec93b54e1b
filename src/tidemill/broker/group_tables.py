"""Consumer groups as ClickHouse tables, for SQL users: each group, its members and its committed offsets.

A worker reads the groups twice a second and writes the changes, with one insert per table and server.
`groups/core/table_changes.py` defines what counts as a change. Inserts fail independently: an unreachable server, or a
group whose rows are rejected, does not delay the others. The journal remains the source of truth for groups. The broker
reads the tables only to learn when a member joined that another broker has written before, and to compare the offsets
with the journal (`group_table_check.py`).
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

import pyarrow as pa
import structlog

from tidemill.broker.broker import BrokerNode
from tidemill.broker.group_table_check import CHECK_S, OffsetTableCheck, portions
from tidemill.groups.core.overview import NEVER, Overview
from tidemill.groups.core.table_changes import (
    NANOSECONDS,
    Changes,
    MemberPlace,
    RecordedGroup,
    RecordedMember,
    RecordedOffset,
    Recording,
)
from tidemill.model.errors import TidemillError
from tidemill.model.metrics import MetricReading
from tidemill.sql.table_rows import quoted
from tidemill.streams.interface import StoreAway

INTERVAL_S = 0.5
PAUSES_PER_PASS = 20
"""With very many groups a pass takes a while, so a pause of this many times its length follows. The time that a slow
server takes does not count, and does not make passes rarer.
"""
INSERTS_PER_PASS_MAX = 16
"""For one table and server, when rows are rejected: enough to find one group among tens of thousands by halving."""
_NANOSECONDS = pa.timestamp("ns", tz="UTC")
_MILLISECONDS = pa.timestamp("ms", tz="UTC")
_MEMBERS = pa.schema(
    {
        "group_id": pa.string(),
        "member_id": pa.string(),
        "generation_id": pa.int32(),
        "protocol_type": pa.string(),
        "protocol_name": pa.string(),
        "client_id": pa.string(),
        "client_host": pa.string(),
        "metadata": pa.string(),
        "assignment": pa.map_(pa.string(), pa.map_(pa.int32(), pa.string())),
        "join_time": _NANOSECONDS,
        "heartbeat_time": _NANOSECONDS,
        "state": pa.string(),
    }
)
_GROUPS = pa.schema(
    {
        "group_id": pa.string(),
        "kind": pa.string(),
        "state": pa.string(),
        "generation_id": pa.int32(),
        "protocol_type": pa.string(),
        "protocol_name": pa.string(),
        "leader": pa.string(),
        "members": pa.uint32(),
        "state_time": _MILLISECONDS,
        "rebalance_time": _MILLISECONDS,
        "recent_rebalances": pa.uint32(),
        "coordinator": pa.int32(),
        "update_time": _MILLISECONDS,
    }
)
_OFFSETS = pa.schema(
    {
        "group_id": pa.string(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "leader_epoch": pa.int32(),
        "metadata": pa.string(),
        "commit_time": _MILLISECONDS,
        "member_id": pa.string(),
        "generation_id": pa.int32(),
        "client_id": pa.string(),
        "client_host": pa.string(),
        "deleted": pa.bool_(),
    }
)
MEMBERS_SERVER = 0
"""The server that stores the members of all groups. Offsets are stored with their partitions."""

log = structlog.get_logger("tidemill.broker")


class TableWriter(Protocol):
    """Servers that store the tables."""

    def owner_of(self, partition: int, spread: int) -> int:
        """The server that stores a partition and its committed offsets; `spread` as in its topic."""

    async def insert(self, table: str, rows: pa.RecordBatch, *, token: str, server: int = 0) -> None:
        """Store rows as one block; a repeat with the same token changes nothing."""

    async def query(self, sql: str, *, server: int = 0) -> pa.Table:
        """The rows of a SELECT; text is returned as bytes."""

    async def command(self, sql: str, *, server: int = 0) -> None:
        """Run a statement without a result."""

    @property
    def servers(self) -> int:
        """How many servers there are."""

    def is_away(self, server: int) -> bool:
        """Whether the server was unreachable at the last call."""


class GroupRecorder:
    """Writes the groups of one broker."""

    def __init__(self, broker: BrokerNode, tables: TableWriter, tokens: str) -> None:
        self._broker = broker
        self._tables = tables
        self._tokens = (f"{tokens}groups-{number}" for number in count())
        self._recording = Recording()
        self._check = OffsetTableCheck(tables, self._recording, self._server_of)
        self._checked_s = time.monotonic()
        self._pass_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the worker."""
        self._task = self._broker.supervisor.keep("group tables", self._run)

    async def close(self) -> None:
        """Stop the worker and write the remaining changes."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self.record()

    async def record(self) -> None:
        """Write what has changed since the last call."""
        groups = self._broker.groups
        began = time.monotonic()
        overview = groups.overview(self._broker.view.topic_name)
        self._pass_s = time.monotonic() - began
        await self._compare(overview)
        joined_ns, failed = await self._join_times(overview)
        changes = self._recording.changes(overview, self._broker.clock_ms(), groups.carries, joined_ns)
        portions = [(server, Changes([], offsets)) for server, offsets in self._by_server(changes.offsets).items()]
        # Groups do not wait for the join times of members, which come from the table.
        members = changes.members if failed is None else []
        portions.append((MEMBERS_SERVER, Changes(members, [], changes.groups)))
        results = await asyncio.gather(*(self._write(server, each) for server, each in portions))
        for error in filter(None, [failed, *results]):
            log.warning("group_tables_write_failed", error=str(error), next_step="retried in the next pass")

    async def _compare(self, overview: Overview) -> None:
        """Compare the offsets of groups that are new here with the tables, and now and then those of all groups."""
        reachable = [server for server in range(self._tables.servers) if not self._tables.is_away(server)]
        results = await asyncio.gather(
            *(self._compare_server(server, overview) for server in reachable), return_exceptions=True
        )
        if self._is_check_due():
            self._checked_s = time.monotonic()
        for error in results:
            if isinstance(error, TidemillError):
                log.warning("group_table_check_failed", error=str(error), next_step="retried in the next pass")
            elif error is not None:
                raise error

    async def _compare_server(self, server: int, overview: Overview) -> None:
        now_ms, is_here = self._broker.clock_ms(), self._broker.groups.carries
        await self._check.take_over(server, overview, now_ms, is_here)
        if self._is_check_due():
            await self._check.compare_page(server, overview, now_ms, is_here)

    def _is_check_due(self) -> bool:
        return time.monotonic() - self._checked_s >= CHECK_S

    def readings(self) -> Iterable[MetricReading]:
        """The metrics of the tables."""
        return self._check.readings()

    async def _join_times(self, overview: Overview) -> tuple[Mapping[MemberPlace, int], Exception | None]:
        """The join times of members that another broker has written before, or the error of reading them."""
        try:
            return await self._joined(self._recording.unrecorded_members(overview)), None
        except TidemillError as error:
            return {}, error

    def _by_server(self, offsets: Sequence[RecordedOffset]) -> Mapping[int, list[RecordedOffset]]:
        found: defaultdict[int, list[RecordedOffset]] = defaultdict(list)
        for each in offsets:
            found[self._server_of(each.seen.topic, each.seen.partition)].append(each)
        return found

    def _server_of(self, name: str, partition: int) -> int:
        topic = self._broker.view.topic(name)
        spread = topic.settings.tidemill_spread_servers if topic is not None else 0
        return self._tables.owner_of(partition, spread)

    async def _write(self, server: int, changes: Changes) -> Exception | None:
        """Write the rows that the server accepts, halving the parts it rejects; the last error, if any."""
        failed: Exception | None = None
        pending = [changes]
        for _ in range(INSERTS_PER_PASS_MAX):
            if not pending:
                break
            part = pending.pop(0)
            if not part.group_ids:
                continue
            try:
                await self._insert_part(server, part)
            except StoreAway as error:
                return error
            except (TidemillError, ValueError, OverflowError) as error:  # Arrow's errors are ValueErrors
                failed = error
                pending += _halves(part)
            else:
                self._recording.accept(part)
        return failed

    async def _insert_part(self, server: int, part: Changes) -> None:
        if part.members:
            await self._insert("group_members", _MEMBERS, map(_member, part.members), server)
        if part.groups:
            rows = (_group(each, self._broker.node_id) for each in part.groups)
            await self._insert("consumer_groups", _GROUPS, rows, server)
        if part.offsets:
            await self._insert("consumer_offsets", _OFFSETS, map(_offset, part.offsets), server)

    async def _joined(self, members: Sequence[MemberPlace]) -> Mapping[MemberPlace, int]:
        """The join times of those members that were written before."""
        known: dict[MemberPlace, int] = {}
        for listed in portions([f"({quoted(group)}, {quoted(member)})" for group, member in members]):
            found = await self._tables.query(
                "SELECT group_id, member_id, toUnixTimestamp64Nano(min(join_time)) AS joined FROM group_members "  # noqa: S608 - quoted
                f"WHERE (group_id, member_id) IN ({listed}) GROUP BY group_id, member_id",
                server=MEMBERS_SERVER,
            )
            for row in found.to_pylist():
                known[row["group_id"].decode(), row["member_id"].decode()] = row["joined"]
        return known

    async def _insert(self, table: str, schema: pa.Schema, lines: Any, server: int) -> None:
        columns = zip(schema, zip(*lines, strict=True), strict=True)
        rows = pa.record_batch([_array(values, field.type) for field, values in columns], schema=schema)
        await self._tables.insert(table, rows, token=next(self._tokens), server=server)

    async def _run(self) -> None:
        while True:
            await self.record()
            await asyncio.sleep(max(INTERVAL_S, PAUSES_PER_PASS * self._pass_s))


def _halves(part: Changes) -> list[Changes]:
    """Two parts of about the same number of groups; empty for a single group."""
    groups = sorted(part.group_ids)
    if len(groups) == 1:
        return []
    middle = len(groups) // 2
    return [part.of_groups(set(groups[:middle])), part.of_groups(set(groups[middle:]))]


def _member(each: RecordedMember) -> Sequence[Any]:
    seen = each.seen
    assignment = [(topic, [(index, seen.member_id) for index in indexes]) for topic, indexes in seen.assignment.items()]
    return (*seen[:7], seen.metadata, assignment, each.joined_ns, max(seen.heard_ms, 0) * NANOSECONDS, seen.state)


def _group(each: RecordedGroup, coordinator: int) -> Sequence[Any]:
    seen = each.seen
    times = (None if at_ms == NEVER else at_ms for at_ms in (seen.state_ms, seen.rebalanced_ms))
    return (*seen[:8], *times, seen.recent_rebalances, coordinator, each.written_ms)


def _offset(each: RecordedOffset) -> Sequence[Any]:
    return (*each.seen[:-1], *each.seen.committer, each.deleted)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
