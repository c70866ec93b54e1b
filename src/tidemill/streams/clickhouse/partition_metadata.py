"""What is kept beside the rows of each partition: where its log begins, and the checkpoint of its state.

A note is a row of `partitions`; the newest of a partition is the one that counts. Notes of many partitions that are
written at the same time (all of them when a broker stops) become one insert. On servers they are kept by the topic's
id: a late note of a topic that was deleted says nothing about one that was made since.

A note also says which offsets may have been given to records since (`given_offset`), and for how long rows are kept:
when a broker was killed and all rows have expired before the next one starts, no offset is given twice.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa

from tidemill.streams.clickhouse.batcher import Gathering
from tidemill.streams.clickhouse.claims import NUMBER_BITS
from tidemill.streams.clickhouse.engine import Engine
from tidemill.streams.clickhouse.errors import EngineError, EngineUncertain
from tidemill.streams.clickhouse.statements import PartitionRef, listed

NO_CUT = -1
FOR_EVER = -1
UNKNOWN = -2
ATTEMPTS_MAX = 5
RETRY_S = 0.2
_COLUMNS = "start_offset, end_offset, cut_offset, saved, state, pieces, version, given_offset, given_ms, kept_ms"


class Note(NamedTuple):
    """One note; `cut_offset` says that rows from there on are being removed.

    `given_offset`: offsets below it may belong to records that came after `given_ms`. `kept_ms`: how long after their
    insert rows expire.
    """

    start_offset: int = 0
    end_offset: int = 0
    cut_offset: int = NO_CUT
    saved: bool = False
    state: str = ""
    pieces: str = ""
    version: int = 0
    given_offset: int = 0
    given_ms: int = 0
    kept_ms: int = UNKNOWN

    def outlived(self, now_ms: int | None) -> bool:
        """Whether rows that got these offsets may have expired; clocks differ, so half of the time is enough.

        Without a time (the clock is in doubt) they may have: an offset that is left out does no harm.
        """
        return self.kept_ms >= 0 and (now_ms is None or now_ms - self.given_ms >= self.kept_ms // 2)

    def next_version(self, epoch: int) -> int:
        """The version of the note that follows this one: those of a later leader count, however late one comes."""
        return max(self.version + 1, epoch << NUMBER_BITS)

    def state_value(self) -> dict[str, Any]:
        """The partition's state as it was given."""
        found: dict[str, Any] = json.loads(self.state)
        return found


class Noted(NamedTuple):
    """A note and whose it is."""

    place: PartitionRef
    note: Note


class Notes:
    """The notes on one server."""

    def __init__(self, engine: Engine, server: int, prefix: str) -> None:
        self._engine = engine
        self._server = server
        self._tokens = (f"{prefix}notes-{server}-{number}" for number in count())
        self._writing: Gathering[Noted, None] = Gathering(self._write)

    async def read(self, places: Iterable[PartitionRef]) -> dict[PartitionRef, Note]:
        """The newest notes of these partitions."""
        wanted = list(places)
        found = await self._read(f"WHERE (topic, partition) IN ({listed(wanted)})")
        own = ((each, found.get(each) or found.get(each._replace(topic_id=""))) for each in wanted)
        return {place: note for place, note in own if note is not None}

    async def read_all(self) -> dict[PartitionRef, Note]:
        """The newest note of every partition."""
        return await self._read("")

    async def write(self, place: PartitionRef, note: Note) -> None:
        """Return when the note is stored."""
        await self._writing.ask(Noted(place, note))

    async def _read(self, where: str) -> dict[PartitionRef, Note]:
        found = await self._engine.query(
            f"SELECT topic, partition, topic_id, {_COLUMNS} FROM partitions {where} "
            "ORDER BY topic, partition, topic_id, version DESC LIMIT 1 BY topic, partition, topic_id",
            server=self._server,
        )
        return {
            PartitionRef(row["topic"].decode(), row["partition"], row["topic_id"].decode()): _note(row)
            for row in found.to_pylist()
        }

    async def _write(self, noted: Sequence[Noted]) -> list[None]:
        await self._insert(_rows(noted), next(self._tokens))
        return [None] * len(noted)

    async def _insert(self, rows: pa.RecordBatch, token: str) -> None:
        """A note that is in doubt may be there: it says nothing wrong, so after a while it is an error like others."""
        for attempt in range(ATTEMPTS_MAX):
            try:
                return await self._engine.insert("partitions", rows, token=token, server=self._server)
            except EngineUncertain:
                if attempt + 1 == ATTEMPTS_MAX:
                    raise
                await asyncio.sleep(RETRY_S)
        raise EngineError("no attempt was made")


def _rows(pending: Sequence[Noted]) -> pa.RecordBatch:
    notes = [each.note for each in pending]
    return pa.record_batch(
        {
            "topic": pa.array([each.place.topic for each in pending], pa.string()),
            "partition": pa.array([each.place.partition for each in pending], pa.int32()),
            "topic_id": pa.array([each.place.topic_id for each in pending], pa.string()),
            "version": pa.array([note.version for note in notes], pa.uint64()),
            "start_offset": pa.array([note.start_offset for note in notes], pa.int64()),
            "end_offset": pa.array([note.end_offset for note in notes], pa.int64()),
            "cut_offset": pa.array([note.cut_offset for note in notes], pa.int64()),
            "saved": pa.array([note.saved for note in notes], pa.bool_()),
            "state": pa.array([note.state for note in notes], pa.string()),
            "pieces": pa.array([note.pieces for note in notes], pa.string()),
            "given_offset": pa.array([note.given_offset for note in notes], pa.int64()),
            "given_ms": pa.array([note.given_ms for note in notes], pa.int64()),
            "kept_ms": pa.array([note.kept_ms for note in notes], pa.int64()),
        }
    )


def _note(row: dict[str, Any]) -> Note:
    return Note(
        row["start_offset"],
        row["end_offset"],
        row["cut_offset"],
        bool(row["saved"]),
        row["state"].decode(),
        row["pieces"].decode(),
        row["version"],
        row["given_offset"],
        row["given_ms"],
        row["kept_ms"],
    )
