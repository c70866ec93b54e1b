"""The metadata of each partition: the start of its log, and the checkpoint of its state.

A note is a row of `partitions`, and the newest note of a partition is valid. Notes that are written at the same time
(at a stop: all of them) become one insert. On servers, notes are stored by topic id. So a late note of a deleted topic
does not affect a new topic of the same name.

A note also reserves offsets that records may have got since (`given_offset`), and stores the retention time of rows. So
no offset is assigned twice, even if a broker was killed and all rows expired before the next start.
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
    """One note. A set `cut_offset` means that rows from there on are being deleted.

    Offsets below `given_offset` may belong to records that arrived after `given_ms`. `kept_ms` is how long after their
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
        """Whether rows with these offsets may have expired. Clocks differ, so half of the time counts as expired.

        Without a time (the clock is not trusted) the answer is yes, because skipping an offset is harmless.
        """
        return self.kept_ms >= 0 and (now_ms is None or now_ms - self.given_ms >= self.kept_ms // 2)

    def next_version(self, epoch: int) -> int:
        """Return the version of the next note. A later leader's version is higher, even if an old note arrives late."""
        return max(self.version + 1, epoch << NUMBER_BITS)

    def state_value(self) -> dict[str, Any]:
        """Return the partition's state as it was saved."""
        found: dict[str, Any] = json.loads(self.state)
        return found


class Noted(NamedTuple):
    """A note and its partition."""

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
        """Return the newest notes of these partitions."""
        wanted = list(places)
        found = await self._read(f"WHERE (topic, partition) IN ({listed(wanted)})")
        own = ((each, found.get(each) or found.get(each._replace(topic_id=""))) for each in wanted)
        return {place: note for place, note in own if note is not None}

    async def read_all(self) -> dict[PartitionRef, Note]:
        """Return the newest note of every partition."""
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
        """Insert notes. An uncertain note may be stored, which is harmless, so the last attempt raises its error."""
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
