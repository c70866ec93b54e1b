"""The state of brokers as tables: partitions, groups, lag, timers, each at the moment of the query."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from tidemill.client.kafka.options import ClientOptions
from tidemill.groups.core.overview import NEVER, SeenGroup, SeenMember, SeenOffset
from tidemill.model.errors import TidemillError
from tidemill.model.offset_notes import is_note
from tidemill.model.topics import TopicPartition
from tidemill.records.unread import UnreadPosition
from tidemill.shares.core.share_position import SharePosition
from tidemill.sql.core.errors import SqlRefused
from tidemill.sql.interface import BrokerState
from tidemill.sql.peer_access import PeerAccess
from tidemill.sql.remote_state import RemoteState, UnreadAt
from tidemill.sql.rows import ArrowRows, Loop, StreamedRows, TableRows
from tidemill.sql.visible_rows import VisibleRows
from tidemill.streams.partition import Partition
from tidemill.timelines.core.message import EVERYTHING, FIND_LIMIT_MAX, TimedMessage, TimelinePosition, status_of

TIME = pa.timestamp("ms", tz="UTC")
PEEKED_AT_A_TIME = 32
_ASSIGNMENT = pa.map_(pa.string(), pa.map_(pa.int32(), pa.string()))
_OFFSETS = {
    "group_id": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "leader_epoch": pa.int32(),
    "metadata": pa.string(),
    "commit_time": TIME,
    "member_id": pa.string(),
    "generation_id": pa.int32(),
    "client_id": pa.string(),
    "client_host": pa.string(),
}
_GROUPS = {
    "group_id": pa.string(),
    "kind": pa.string(),
    "state": pa.string(),
    "generation_id": pa.int32(),
    "protocol_type": pa.string(),
    "protocol_name": pa.string(),
    "leader": pa.string(),
    "members": pa.int32(),
    "state_time": TIME,
    "rebalance_time": TIME,
    "recent_rebalances": pa.int32(),
    "coordinator": pa.int32(),
}
_MEMBERS = {
    "group_id": pa.string(),
    "member_id": pa.string(),
    "generation_id": pa.int32(),
    "protocol_type": pa.string(),
    "protocol_name": pa.string(),
    "client_id": pa.string(),
    "client_host": pa.string(),
    "assignment": _ASSIGNMENT,
    "leader": pa.bool_(),
    "heartbeat_time": TIME,
    "state": pa.string(),
}
_LAG = {
    "group_id": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "committed_offset": pa.int64(),
    "latest_offset": pa.int64(),
    "lag": pa.int64(),
    "lag_seconds": pa.float64(),
    "commit_time": TIME,
}
_SHARES = {
    "group_id": pa.string(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "start_offset": pa.int64(),
    "end_offset": pa.int64(),
    "lag": pa.int64(),
    "acquired": pa.int64(),
    "available": pa.int64(),
    "waiting": pa.int64(),
    "oldest_lock_seconds": pa.float64(),
}
_PARTITIONS = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "start_offset": pa.int64(),
    "end_offset": pa.int64(),
    "bytes": pa.int64(),
    "storage": pa.string(),
}
_TIMERS = pa.schema(
    {
        "timeline": pa.string(),
        "id": pa.string(),
        "due_time": TIME,
        "scheduled_time": TIME,
        "status": pa.string(),
        "holder": pa.string(),
        "attempts": pa.int32(),
        "producer_group": pa.string(),
        "key": pa.binary(),
        "bytes": pa.int64(),
    }
)


_COMMITTED = list(_OFFSETS)[:7]
"""The columns of an offset without its committer."""
SHARED = frozenset({"partitions", "consumer_groups", "group_members", "consumer_offsets", "share_groups"})
"""Tables of which each broker of a cluster has a part."""


class StateTables:
    """The tables that brokers build from their state."""

    def __init__(self, broker: BrokerState, loop: Loop, clock_ms: Callable[[], int], access: PeerAccess) -> None:
        self._broker = broker
        self._loop = loop
        self._clock_ms = clock_ms
        self._peers = RemoteState(broker, access)

    async def rows(self, table: str, visible: VisibleRows) -> ArrowRows:
        """Return the rows of one of the tables, of all brokers, that a client may see."""
        if table == "timers":
            return StreamedRows(_TIMERS, partial(self._timers, self._timelines(visible)))
        if table == "consumer_lag":
            return TableRows(_table(_LAG, await self._lag(visible)))
        found = await self._all(table, visible)
        return TableRows(best_known(found) if table == "share_groups" else found)

    def here(self, table: str, visible: VisibleRows) -> pa.Table:
        """Return this broker's part of one of the SHARED tables, with the rows that a client may see."""
        if table == "partitions":
            places = [each for each in self._places() if visible.describes(each.topic)]
            found = [self._broker.partitions.find(*each) for each in places]
            return _table(_PARTITIONS, [self._partition(each) for each in found if each is not None and each.leads])
        if table == "share_groups":
            positions = self._broker.share_positions.now()
            return _table(
                _SHARES,
                [
                    _share(each)
                    for each in positions
                    if visible.describes_group(each.group_id) and visible.describes(each.topic)
                ],
            )
        overview = self._broker.groups.overview(self._broker.view.topic_name)
        if table == "group_members":
            now_ms = self._clock_ms()
            members = [each for each in overview.members if visible.describes_group(each.group_id)]
            return _table(_MEMBERS, [_member(each, now_ms, visible) for each in members])
        if table == "consumer_offsets":
            offsets = overview.offsets
            shown = [
                each for each in offsets if visible.describes_group(each.group_id) and visible.describes(each.topic)
            ]
            return _table(_OFFSETS, [(*each[:-1], *each.committer) for each in shown])
        if table == "consumer_groups":
            groups = [each for each in overview.groups if visible.describes_group(each.group_id)]
            return _table(_GROUPS, [_group(each, self._broker.node_id) for each in groups])
        raise ValueError(table)

    async def _all(self, table: str, visible: VisibleRows) -> pa.Table:
        # A broker of the previous version may lack a column during an upgrade.
        parts = [self.here(table, visible), *await self._peers.tables(table, visible.rights)]
        return pa.concat_tables(parts, promote_options="default")

    def readable_places(self, visible: VisibleRows) -> list[TopicPartition]:
        """Return the partitions whose records a client may read, sorted."""
        return [each for each in self._places() if visible.reads(each.topic)]

    def _places(self) -> list[TopicPartition]:
        """Return every partition of a user's topic, sorted."""
        topics = sorted(
            (topic for topic in self._broker.view.topics() if not topic.internal), key=lambda topic: topic.name
        )
        return [TopicPartition(topic.name, each.index) for topic in topics for each in topic.partitions]

    def led_here(self, place: TopicPartition) -> Partition | None:
        """Return the partition if this broker leads it. Raises SqlRefused when it leads it but cannot read it."""
        found = self._broker.partitions.find(*place)
        if found is not None:
            return found if found.leads else None
        broken = self._broker.partitions.trouble(*place)
        if broken is not None:
            raise SqlRefused(f"{place.topic}-{place.partition} cannot be read: {broken}")
        return None

    def elsewhere(self) -> ClientOptions:
        """Return the options of a client that reads the partitions of other brokers."""
        return self._peers.kafka()

    def storage_of(self, partition: Partition) -> str:
        """Return where the records of a partition are stored."""
        return "clickhouse" if self._broker.partitions.store.is_in_tables(partition.topic) else "segments"

    def _partition(self, each: Partition) -> Sequence[Any]:
        return (
            each.topic,
            each.index,
            each.log_start_offset,
            each.high_watermark,
            each.size_bytes,
            self.storage_of(each),
        )

    async def _lag(self, visible: VisibleRows) -> list[Sequence[Any]]:
        now_ms = self._clock_ms()
        turns = asyncio.Semaphore(PEEKED_AT_A_TIME)
        offsets = (await self._all("consumer_offsets", visible)).select(_COMMITTED)
        found = (await self._all("partitions", visible)).select(["topic", "partition", "end_offset"])
        ends = {TopicPartition(each["topic"], each["partition"]): each["end_offset"] for each in found.to_pylist()}
        committed = [
            SeenOffset(*row.values())
            for row in offsets.set_column(6, "commit_time", offsets["commit_time"].cast(pa.int64())).to_pylist()
            if not is_note(row["group_id"], row["metadata"])
        ]
        away: dict[tuple[TopicPartition, int], None] = {}
        for each in committed:
            place = TopicPartition(each.topic, each.partition)
            if ends.get(place, 0) > each.offset and self.led_here(place) is None:
                away[place, each.offset] = None
        unread = await self._peers.unread(away)

        async def line(each: SeenOffset) -> Sequence[Any] | None:
            place = TopicPartition(each.topic, each.partition)
            if place not in ends:
                return None
            partition, latest = self.led_here(place), ends[place]
            if latest <= each.offset:
                found = UnreadAt(UnreadPosition(each.offset), each.offset)
            elif partition is None:
                found = unread.get((place, each.offset), UnreadAt(UnreadPosition(each.offset), latest))
            else:
                async with turns:
                    found = await _unread(partition, each.offset)
            lag = found.position.records_to(found.end_offset)
            old_s = found.position.age_s(now_ms) if lag else None
            return (*each[:4], max(latest, each.offset), lag, old_s or 0.0, each.commit_ms)

        lines = await asyncio.gather(*map(line, committed))
        return [each for each in lines if each is not None]

    def _timelines(self, visible: VisibleRows) -> list[str]:
        dispatcher = self._broker.timelines
        every = [] if dispatcher is None else [each.name for each in dispatcher.timelines()]
        return [name for name in every if visible.reads_timeline(name)]

    def _timers(self, timelines: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for name in timelines:
            after: TimelinePosition | None = None
            while found := self._loop.call(partial(self._some_timers, name, after)):
                now_ms = self._clock_ms()
                yield pa.record_batch(_columns(_TIMERS, [_timer(name, each, now_ms) for each in found]))
                after = TimelinePosition(found[-1].due_ms, found[-1].seq)

    async def _some_timers(self, name: str, after: TimelinePosition | None) -> list[TimedMessage]:
        dispatcher = self._broker.timelines
        if dispatcher is None:
            return []
        try:
            return await dispatcher.messages(name, EVERYTHING, FIND_LIMIT_MAX, after=after, bodies=False)
        except TidemillError:
            return []  # the timeline is being deleted


async def _unread(partition: Partition, offset: int) -> UnreadAt:
    """Return what is unread from an offset on; nothing when it can no longer be read."""
    try:
        position = await partition.reader.next_unread(offset)
    except TidemillError:
        return UnreadAt(UnreadPosition(offset), offset)
    return UnreadAt(position, partition.last_stable_offset)


def _group(each: SeenGroup, node_id: int) -> Sequence[Any]:
    state_ms, rebalanced_ms = (None if at_ms == NEVER else at_ms for at_ms in (each.state_ms, each.rebalanced_ms))
    return (*each[:8], state_ms, rebalanced_ms, each.recent_rebalances, node_id)


def _share(each: SharePosition) -> Sequence[Any]:
    flight = each.in_flight
    counts = (None,) * 4 if flight is None else (*flight[:3], flight.oldest_lock_ms / 1_000)
    return (*each[:6], *counts)


def best_known(found: pa.Table) -> pa.Table:
    """One row for each partition of a share group: that of its leader, which knows most, if it has one."""
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in found.to_pylist():
        place = tuple(list(row.values())[:3])
        if place not in best or row["acquired"] is not None:
            best[place] = row
    return pa.Table.from_pylist(list(best.values()), schema=pa.schema(_SHARES))


def _member(each: SeenMember, now_ms: int, visible: VisibleRows) -> Sequence[Any]:
    assignment = [
        (topic, [(index, each.member_id) for index in indexes])
        for topic, indexes in sorted(each.assignment.items())
        if visible.describes(topic)
    ]
    return (*each[:7], assignment, each.leads, min(max(each.heard_ms, 0), now_ms), each.state)


def _timer(timeline: str, each: TimedMessage, now_ms: int) -> Sequence[Any]:
    status = status_of(each.due_ms, each.holder, now_ms).value
    return (
        timeline,
        each.id,
        each.due_ms,
        each.scheduled_ms,
        status,
        each.holder if status == "leased" else None,
        each.attempts,
        each.group,
        each.key,
        each.size,
    )


def _table(columns: dict[str, pa.DataType], lines: Iterable[Sequence[Any]]) -> pa.Table:
    schema = pa.schema(columns)
    return pa.table(_columns(schema, list(lines)), schema=schema)


def _columns(schema: pa.Schema, lines: Sequence[Sequence[Any]]) -> dict[str, pa.Array]:
    values = list(zip(*lines, strict=True)) or [()] * len(schema)
    return {field.name: _array(each, field.type) for field, each in zip(schema, values, strict=True)}


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == TIME:
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
