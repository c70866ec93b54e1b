"""Reads old batches in two steps: first which ones fit, then their rows.

The first query reads three small columns. So the second one never returns more than was requested, whatever the record
sizes are.
"""

import asyncio
from collections.abc import Iterator

import pyarrow as pa

from tidemill.streams.clickhouse.engine import Engine
from tidemill.streams.clickhouse.kernels import CHOICE
from tidemill.streams.clickhouse.rows import COLUMNS, OUTLINE, batches_of, outline_of
from tidemill.streams.clickhouse.segments import Counted
from tidemill.streams.clickhouse.statements import PartitionRef
from tidemill.streams.interface import StoredBatch

PLANNED_ROWS_MAX = 65_536
"""How many rows one step plans. A batch with more rows is read alone."""


class Reader:
    """Reads the rows of one partition."""

    def __init__(self, engine: Engine, server: int, place: PartitionRef) -> None:
        self._engine = engine
        self._server = server
        self._where = place.rows

    async def read(self, offset: int, end_offset: int, max_bytes: int) -> list[StoredBatch]:
        """Return whole batches from the one with `offset` on that start below `end_offset`; at least one."""
        plan = await self._ask(
            f"SELECT batch_offset, batch_last, batch_bytes FROM messages WHERE {self._where} AND offset < {end_offset} "
            f"AND offset >= ifNull((SELECT batch_offset FROM messages WHERE {self._where} AND offset >= {offset} "
            f"ORDER BY offset LIMIT 1), {offset}) ORDER BY offset LIMIT {PLANNED_ROWS_MAX}"
        )
        if not len(plan):
            return []
        first, last = _range(plan, max_bytes)
        rows = await self._ask(
            f"SELECT {COLUMNS} FROM messages WHERE {self._where} AND offset >= {first} AND offset <= {last} "
            "ORDER BY offset"
        )
        return await asyncio.to_thread(lambda: batches_of(rows, CHOICE.for_rows(len(rows))))

    async def outline(self, offset: int, end_offset: int) -> list[StoredBatch]:
        """Return the headers of many batches at once, and whole batches for markers."""
        rows = await self._ask(
            f"SELECT {OUTLINE} FROM messages WHERE {self._where} AND offset >= {offset} AND offset < {end_offset} "
            f"ORDER BY offset LIMIT 1 BY batch_offset LIMIT {PLANNED_ROWS_MAX}"
        )
        return outline_of(rows, CHOICE.for_rows(0))

    async def count(self, offset: int) -> list[Counted]:
        """Return the batches from `offset` on, without their records."""
        found = await self._ask(
            "SELECT batch_offset, any(batch_last) + 1 AS next, any(batch_bytes) AS size, "
            "any(batch_max_timestamp) AS time, toUnixTimestamp64Milli(any(appended_at)) AS appended "
            f"FROM messages WHERE {self._where} AND offset >= {offset} GROUP BY batch_offset ORDER BY batch_offset"
        )
        return [Counted(*row.values()) for row in found.to_pylist()]

    async def first_at(self, timestamp: int, offset: int) -> int | None:
        """Return the first row from `offset` on with a timestamp of at least `timestamp`."""
        found = await self._ask(
            f"SELECT minOrNull(offset) AS first FROM messages WHERE {self._where} AND offset >= {offset} "
            f"AND toUnixTimestamp64Milli(timestamp) >= {timestamp}"
        )
        first: int | None = found["first"][0].as_py()
        return first

    async def batch_reaching(self, offset: int) -> int | None:
        """Return the base offset of the first batch that has `offset` or a later one."""
        found = await self._ask(
            f"SELECT minOrNull(batch_offset) AS first FROM messages WHERE {self._where} AND batch_last >= {offset}"
        )
        first: int | None = found["first"][0].as_py()
        return first

    async def first_rows(self, batch_offsets: list[int]) -> list[int]:
        """Return one row of each of these batches."""
        listed = ", ".join(map(str, batch_offsets))
        found = await self._ask(
            f"SELECT min(offset) AS first FROM messages WHERE {self._where} AND batch_offset IN ({listed}) "
            "GROUP BY batch_offset"
        )
        first: list[int] = found["first"].to_pylist()
        return first

    async def bounds(self) -> tuple[int, int] | None:
        """Return the first stored offset and the end offset."""
        found = await self._ask(
            f"SELECT minOrNull(batch_offset) AS first, max(batch_last) + 1 AS next FROM messages WHERE {self._where}"
        )
        first, after = found["first"][0].as_py(), found["next"][0].as_py()
        return None if first is None else (first, after)

    async def _ask(self, sql: str) -> pa.Table:
        return await self._engine.query(sql, server=self._server)


def _range(plan: pa.Table, max_bytes: int) -> tuple[int, int]:
    """Return the first and last offset of the batches that fit. The plan may cut off the last batch."""
    chosen = None
    remaining = max_bytes
    for base, last, size in _batches(plan):
        if chosen is not None and size > remaining:
            break
        chosen = (chosen[0] if chosen else base, last)
        remaining -= size
    if chosen is None:
        raise ValueError("a plan has at least one row")
    return chosen


def _batches(plan: pa.Table) -> Iterator[tuple[int, int, int]]:
    previous = -1
    columns = (plan[name].to_pylist() for name in ("batch_offset", "batch_last", "batch_bytes"))
    for base, last, size in zip(*columns, strict=True):
        if base != previous:
            yield base, last, size
        previous = base
