"""Groups as tables of ClickHouse servers, for those who ask the servers: who is in a group, and what it has committed.

A worker looks at the groups twice a second and writes what has changed, all of it in one insert for each table and
server; see `groups/core/recording.py` for what counts as a change. Groups themselves live by their journal: the tables
are asked for one thing only, when a member joined that another broker has written before.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

import pyarrow as pa
import structlog

from tidemill.broker.broker import Broker
from tidemill.broker.sql.stored import quoted
from tidemill.groups.core.recording import NANOSECONDS, MemberPlace, RecordedMember, RecordedOffset, Recording
from tidemill.model.errors import TidemillError

INTERVAL_S = 0.5
RESTS_PER_LOOK = 20
"""With very many groups a look takes a while: it may have this share of the time at most. To wait for a slow server is
no work, and does not make looks rarer."""
STATEMENT_CHARS_MAX = 100_000
"""ClickHouse reads statements of 256 KiB unless it is told otherwise."""
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
        "assignment": pa.map_(pa.string(), pa.map_(pa.int32(), pa.string())),
        "join_time": _NANOSECONDS,
        "heartbeat_time": _NANOSECONDS,
        "state": pa.string(),
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
NO_GENERATION = -1

log = structlog.get_logger("tidemill.broker")


class TableWriter(Protocol):
    """Servers that keep the tables."""

    def owner_of(self, partition: int) -> int:
        """The server that keeps a partition, and the offsets of its readers."""

    async def insert(self, table: str, rows: pa.RecordBatch, *, token: str, server: int = 0) -> None:
        """Store rows as one block; a repeat with the same token changes nothing."""

    async def query(self, sql: str, *, server: int = 0) -> pa.Table:
        """The rows that a SELECT finds; text comes as bytes."""


class GroupRecorder:
    """Writes the groups of one broker."""

    def __init__(self, broker: Broker, tables: TableWriter, tokens: str) -> None:
        self._broker = broker
        self._tables = tables
        self._tokens = (f"{tokens}groups-{number}" for number in count())
        self._recording = Recording()
        self._looked_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Write what is left to write, and end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._try()

    async def record(self) -> None:
        """Write what has changed since the last time."""
        groups = self._broker.groups
        began = time.monotonic()
        overview = groups.overview(self._broker.topic_name)
        self._looked_s = time.monotonic() - began
        joined_ns = await self._joined(self._recording.strangers(overview))
        changes = self._recording.changes(overview, self._broker.clock_ms(), groups.carries, joined_ns)
        if changes.members:
            await self._insert("group_members", _MEMBERS, map(_member, changes.members), 0)
        by_server: defaultdict[int, list[RecordedOffset]] = defaultdict(list)
        for each in changes.offsets:
            by_server[self._tables.owner_of(each.seen.partition)].append(each)
        for server, offsets in by_server.items():
            await self._insert("consumer_offsets", _OFFSETS, map(_offset, offsets), server)
        self._recording.accept(changes)

    async def _joined(self, members: Sequence[MemberPlace]) -> Mapping[MemberPlace, int]:
        """When these have joined, of those that were written before."""
        known: dict[MemberPlace, int] = {}
        for listed in _portions([f"({quoted(group)}, {quoted(member)})" for group, member in members]):
            found = await self._tables.query(
                "SELECT group_id, member_id, toUnixTimestamp64Nano(min(join_time)) AS joined FROM group_members "  # noqa: S608 - quoted
                f"WHERE (group_id, member_id) IN ({listed}) GROUP BY group_id, member_id"
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
            await self._try()
            await asyncio.sleep(max(INTERVAL_S, RESTS_PER_LOOK * self._looked_s))

    async def _try(self) -> None:
        try:
            await self.record()
        except TidemillError as error:
            log.warning("groups could not be written to tables; they will be", error=str(error))


def _portions(items: Sequence[str]) -> Iterator[str]:
    """Lists of a length that fits into a statement."""
    portion: list[str] = []
    size = 0
    for item in items:
        if portion and size + len(item) > STATEMENT_CHARS_MAX:
            yield ", ".join(portion)
            portion, size = [], 0
        portion.append(item)
        size += len(item)
    if portion:
        yield ", ".join(portion)


def _member(each: RecordedMember) -> Sequence[Any]:
    seen = each.seen
    assignment = [(topic, [(index, seen.member_id) for index in indexes]) for topic, indexes in seen.assignment.items()]
    return (*seen[:7], assignment, each.joined_ns, max(seen.heard_ms, 0) * NANOSECONDS, seen.state)


def _offset(each: RecordedOffset) -> Sequence[Any]:
    owner = each.owner
    if owner is None:
        return (*each.seen, "", NO_GENERATION, "", "", each.deleted)
    return (*each.seen, owner.member_id, owner.generation, owner.client_id, owner.client_host, each.deleted)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
