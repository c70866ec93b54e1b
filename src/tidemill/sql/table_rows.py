"""Records in tables, told by questions to the tables: those of this process, and those of servers.

Of servers only columns of a fixed size are asked for so, a window of offsets at a time: what a question may bring is
bounded, whatever the records are. Keys, values and headers come by the way of readers (`rows`), which counts bytes.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa

from tidemill.sql.rows import Loop, Range, StreamedRows, schema_of
from tidemill.streams.partition import Partition

PLAIN = frozenset({"topic", "partition", "offset", "timestamp", "timestamp_type"})
WINDOW_OFFSETS = 1 << 20


class Servers(Protocol):
    """The servers that keep records."""

    def owner_of(self, partition: int, spread: int) -> int:
        """The server of a partition of a topic with this `tidemill.spread.servers`."""

    async def query(self, sql: str, *, server: int = 0) -> pa.Table:
        """What a SELECT finds there."""


class ServerRows:
    """Plain columns of partitions that this broker leads, from the servers that keep them."""

    def __init__(
        self, loop: Loop, servers: Servers, partitions: Sequence[Partition], columns: Sequence[str], wanted: Range
    ) -> None:
        self._loop = loop
        self._servers = servers
        self._partitions = partitions
        self._columns = tuple(columns)
        self._wanted = wanted
        self._schema = schema_of(self._columns)
        self.rows = StreamedRows(self._schema, self._all)

    def _all(self) -> Iterator[pa.RecordBatch]:
        for partition in self._partitions:
            first = max(partition.log_start_offset, self._wanted.first_offset)
            end = min(partition.last_stable_offset, self._wanted.end(partition.last_stable_offset))
            while first < end:
                after = min(first + WINDOW_OFFSETS, end)
                found = self._loop.call(partial(self._ask, partition, first, after))
                yield from found.cast(self._schema).to_batches()
                first = after

    async def _ask(self, partition: Partition, first: int, end: int) -> pa.Table:
        place = f"partition = {partition.index} AND offset >= {first} AND offset < {end}"
        since = self._wanted.since_ms
        late = f" AND timestamp >= fromUnixTimestamp64Milli({since}, 'UTC')" if since > 0 else ""
        question = f"{stored([partition], self._columns, 'messages')} AND {place}{late}"
        server = self._servers.owner_of(partition.index, partition.settings.tidemill_spread_servers)
        return await self._servers.query(question, server=server)


def stored(partitions: list[Partition], columns: tuple[str, ...], table: str = "tidemill.messages") -> str:
    """The question that tells the rows of partitions from the table where they are stored."""
    told = ", ".join("toString(topic) AS topic" if each == "topic" else each for each in columns)
    topics = ", ".join(sorted({quoted(each.topic) for each in partitions}))
    shown = f"mark = 'record' AND topic IN ({topics})"
    left_out = [f"NOT ({condition})" for each in partitions for condition in hidden(each)]
    return f"SELECT {told} FROM {table} WHERE {' AND '.join([shown, *left_out])}"  # noqa: S608 - quoted


def hidden(partition: Partition) -> list[str]:
    """Conditions for rows that are stored and that no reader of committed records sees."""
    place = f"topic = {quoted(partition.topic)} AND partition = {partition.index}"
    found = []
    if partition.log_start_offset > 0:
        found.append(f"{place} AND offset < {partition.log_start_offset}")
    if partition.last_stable_offset < partition.log_end_offset:
        found.append(f"{place} AND offset >= {partition.last_stable_offset}")
    aborted = [f"({each.producer_id}, {each.first_offset}, {each.last_offset})" for each in partition.aborted_ranges()]
    if aborted:
        listed = ", ".join(aborted)
        gone = f"arrayExists(a -> a.1 = producer_id AND a.2 <= offset AND offset <= a.3, [{listed}])"
        found.append(f"{place} AND transactional AND {gone}")
    return found


def quoted(text: str) -> str:
    """A string as it stands in a question."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
