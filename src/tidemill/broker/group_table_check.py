"""Compares the table `consumer_offsets` with the journal, and prepares the repair of rows that differ.

Groups that this broker has just taken over are compared at once: what the table has already is not written again. After
that, one page of each server is compared every minute, so the whole table is compared again and again at a bounded
cost. A difference is logged and counted, wrong rows are deleted, and the next pass writes the right ones. An offset
that was written by hand never reaches a consumer.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import structlog

from tidemill.groups.core.overview import Overview, SeenOffset
from tidemill.groups.core.table_changes import Recording
from tidemill.groups.core.table_comparison import (
    DifferenceKind,
    OffsetDifference,
    OffsetPlace,
    TableOffset,
    differences,
)
from tidemill.model.metrics import CounterReading, MetricReading
from tidemill.sql.table_rows import quoted

CHECK_S = 60.0
PAGE_ROWS = 10_000
LOGGED_MAX = 10
"""For one check: a table that was dropped by hand differs in every row."""
STATEMENT_CHARS_MAX = 100_000
"""The default limit of ClickHouse for a statement is 256 KiB."""
_FIRST: OffsetPlace = ("", "", -1)
_ROW = "(offset, leader_epoch, metadata, deleted, toUnixTimestamp64Milli(commit_time))"
_NEWEST = (  # the second one differs if rows of the same time differ
    f"argMax({_ROW}, (commit_time, offset)) AS high, argMax({_ROW}, (commit_time, -offset)) AS low"
)

log = structlog.get_logger("tidemill.broker")


class CheckedTables(Protocol):
    """Servers that store the table."""

    async def query(self, sql: str, *, server: int = 0) -> pa.Table:
        """The rows of a SELECT; text is returned as bytes."""

    async def command(self, sql: str, *, server: int = 0) -> None:
        """Run a statement without a result."""


class OffsetTableCheck:
    """The comparison of one broker. `server_of` returns the server that stores the offset of a partition."""

    def __init__(self, tables: CheckedTables, recording: Recording, server_of: Callable[[str, int], int]) -> None:
        self.differences: Counter[DifferenceKind] = Counter()
        self._tables = tables
        self._recording = recording
        self._server_of = server_of
        self._compared: set[tuple[int, str]] = set()
        self._cursors: dict[int, OffsetPlace] = {}

    def readings(self) -> Iterator[MetricReading]:
        """The metrics of the check."""
        for kind in DifferenceKind:
            yield CounterReading(
                "tidemill_group_table_differences",
                "Rows of consumer_offsets on ClickHouse servers that differed from the journal, and were repaired.",
                self.differences[kind],
                (("kind", kind.value),),
            )

    async def take_over(self, server: int, overview: Overview, now_ms: int, is_here: Callable[[str], bool]) -> None:
        """Compare the groups that are new here. Offsets that the table has are marked as written."""
        self._compared = {each for each in self._compared if is_here(each[1])}
        new = {each.group_id for each in overview.offsets if (server, each.group_id) not in self._compared}
        if not new:
            return
        present = {_place(each): each for each in overview.offsets if each.group_id in new and _is_text(each)}
        right = self._of_server(server, present.values())
        for some in _portions_of_names(sorted({group_id for group_id, _, _ in right})):
            found = await self._read(server, f"WHERE group_id IN ({', '.join(map(quoted, some))})")
            # A new group has no row yet, which is no difference: the next write adds it.
            chosen = {place: each for place, each in right.items() if place in found}
            await self._settle(server, chosen, found, present, now_ms)
        self._compared |= {(server, group_id) for group_id in new}

    async def compare_page(self, server: int, overview: Overview, now_ms: int, is_here: Callable[[str], bool]) -> None:
        """Compare the next rows of a server with what was written there."""
        after = self._cursors.get(server, _FIRST)
        where = "" if after == _FIRST else f"WHERE (group_id, topic, partition) > ({_literal(after)})"
        rows = await self._read(server, where, PAGE_ROWS)
        end = max(rows) if len(rows) >= PAGE_ROWS else None
        self._cursors[server] = _FIRST if end is None else end
        written = self._of_server(server, self._recording.offsets.values())
        right = {place: each for place, each in written.items() if after < place and (end is None or place <= end)}
        present = {_place(each): each for each in overview.offsets if _is_text(each)}
        found = {place: each for place, each in rows.items() if is_here(place[0])}
        await self._settle(server, right, found, present, now_ms)

    async def _settle(
        self,
        server: int,
        right: Mapping[OffsetPlace, SeenOffset],
        found: Mapping[OffsetPlace, Collection[TableOffset]],
        present: Mapping[OffsetPlace, SeenOffset],
        now_ms: int,
    ) -> None:
        """Repair what differs, and mark the rest as written. What is still to be written is not wrong."""
        written = self._recording.offsets
        pending = {
            place
            for place in right.keys() | found.keys()
            if present.get(place) != right.get(place) or present.get(place) != written.get(place, present.get(place))
        }
        right = {place: each for place, each in right.items() if place not in pending}
        found = {place: each for place, each in found.items() if place not in pending}
        wrong = list(differences(right, found, now_ms))
        await self._repair(server, wrong)
        for place in right.keys() & found.keys() - {each.place for each in wrong}:
            self._recording.adopt(right[place])

    def _of_server(self, server: int, offsets: Iterable[SeenOffset]) -> dict[OffsetPlace, SeenOffset]:
        return {_place(each): each for each in offsets if self._server_of(each.topic, each.partition) == server}

    async def _read(self, server: int, where: str, limit: int = 0) -> dict[OffsetPlace, Collection[TableOffset]]:
        table = await self._tables.query(
            f"SELECT group_id, topic, partition, {_NEWEST} FROM consumer_offsets {where} "  # noqa: S608 - quoted
            f"GROUP BY group_id, topic, partition ORDER BY group_id, topic, partition"
            + (f" LIMIT {limit}" if limit else ""),
            server=server,
        )
        return {
            (_text(row["group_id"]), _text(row["topic"]), row["partition"]): {_found(row["high"]), _found(row["low"])}
            for row in table.to_pylist()
        }

    async def _repair(self, server: int, wrong: Sequence[OffsetDifference]) -> None:
        """Delete wrong rows that would count, and let the next pass write the right ones."""
        for each in wrong[:LOGGED_MAX]:
            group_id, topic, partition = each.place
            log.warning(
                "group_table_difference",
                kind=each.kind.value,
                group=group_id,
                topic=topic,
                partition=partition,
                found=None if each.found is None else each.found.offset,
                journal=None if each.right is None else each.right.offset,
            )
        if len(wrong) > LOGGED_MAX:
            log.warning("group_table_differences", count=len(wrong), logged=LOGGED_MAX)
        self.differences.update(each.kind for each in wrong)
        deletions = [
            f"(group_id = {quoted(each.place[0])} AND topic = {quoted(each.place[1])} AND partition = {each.place[2]} "
            f"AND toUnixTimestamp64Milli(commit_time) >= {from_ms})"
            for each in wrong
            if (from_ms := each.must_delete_from_ms) is not None
        ]
        for portion in portions(deletions, " OR "):
            await self._tables.command(f"DELETE FROM consumer_offsets WHERE {portion}", server=server)  # noqa: S608 - quoted
        for each in wrong:
            self._recording.rewrite(each.place)


def portions(items: Sequence[str], between: str = ", ") -> Iterator[str]:
    """Lists that fit into a statement."""
    portion: list[str] = []
    size = 0
    for item in items:
        if portion and size + len(item) > STATEMENT_CHARS_MAX:
            yield between.join(portion)
            portion, size = [], 0
        portion.append(item)
        size += len(item)
    if portion:
        yield between.join(portion)


def _portions_of_names(names: Sequence[str]) -> Iterator[set[str]]:
    """Names whose literals fit into a statement."""
    portion: set[str] = set()
    size = 0
    for name in names:
        if portion and size + len(name) > STATEMENT_CHARS_MAX // 2:  # a literal has up to twice the characters
            yield portion
            portion, size = set(), 0
        portion.add(name)
        size += len(name)
    if portion:
        yield portion


def _place(offset: SeenOffset) -> OffsetPlace:
    return offset.group_id, offset.topic, offset.partition


def _literal(place: OffsetPlace) -> str:
    return f"{quoted(place[0])}, {quoted(place[1])}, {place[2]}"


def _is_text(offset: SeenOffset) -> bool:
    """Whether the name can be in a statement. Other names cannot be written to the table either."""
    return not any("\ud800" <= each <= "\udfff" for each in offset.group_id)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _found(row: Mapping[str, Any]) -> TableOffset:
    offset, leader_epoch, metadata, deleted, commit_ms = row.values()
    return TableOffset(offset, leader_epoch, _text(metadata), bool(deleted), commit_ms)
