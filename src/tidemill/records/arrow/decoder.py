"""Record batches to Arrow record batches.

The batches of a fetch are gathered until they hold about as many rows as wanted; each such group is one call of the
kernels. Records that are not compressed are read where they lie in the fetch; compressed ones are decompressed and laid
side by side first. Only the wanted columns are made.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from tidemill.records.arrow.schema import COLUMNS, SCHEMA, schema_of
from tidemill.records.arrow.selection import OFFSET_MAX, Place, select
from tidemill.records.arrow.twins import Kernels, Span, kernels
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER_SIZE, BatchHeader, Buffer, check_crc
from tidemill.records.read import read_payload

ROWS = 10_000
"""Rows per Arrow batch that Spark takes fastest (SPARK.md)."""
GROUP_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of a group; with the largest batch behind it still far below the 2 GiB that an Arrow array can address."""


class _Opened(NamedTuple):
    """A batch at its position, with its records where they were compressed."""

    position: int
    header: BatchHeader
    payload: bytes | None


class Decoder:
    """Makes Arrow record batches of one partition's batches."""

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        columns: Sequence[str] = COLUMNS,
        rows: int = ROWS,
        verify: bool = True,
        twin: Kernels | None = None,
    ) -> None:
        self.schema = schema_of(tuple(columns))
        self._wanted = frozenset(columns)
        self._rows = rows
        self._verify = verify
        self._twin = kernels() if twin is None else twin
        self._constants = {"topic": pa.scalar(topic), "partition": pa.scalar(partition, pa.int32())}
        self._repeated: dict[str, pa.Array] = {}

    def decode(
        self, buffer: Buffer, start: int = 0, end: int = OFFSET_MAX, aborted: Iterable[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The records with offsets from `start` to before `end`; a cut last batch is left out.

        `aborted` is what a fetch for committed records says. CorruptMessage when anything is damaged.
        """
        view = memoryview(buffer)
        for group in self._groups(view, select(view, start, end, aborted)):
            data, spans = _side_by_side(view, group)
            found = self._twin.read(data, spans, start, end, self._wanted)
            rows = len(found["offset"])
            if rows:
                yield from self._sliced(self._assemble(found, rows))

    def _groups(self, view: memoryview, places: Iterable[Place]) -> Iterator[list[_Opened]]:
        group: list[_Opened] = []
        rows = size = 0
        for position, header in places:
            if group and (rows + header.count > self._rows or size > GROUP_BYTES_MAX):
                yield group
                group, rows, size = [], 0, 0
            if self._verify:
                check_crc(view, position, header)
            payload = None if header.codec == Codec.NONE else read_payload(view[position:], header)
            group.append(_Opened(position, header, payload))
            rows += header.count
            size += header.size if payload is None else len(payload)
        if group:
            yield group

    def _assemble(self, found: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        arrays = [self._constant(name, rows) if name in self._constants else found[name] for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _constant(self, name: str, rows: int) -> pa.Array:
        known = self._repeated.get(name)
        if known is None or len(known) < rows:
            known = self._repeated[name] = pa.repeat(self._constants[name], max(rows, self._rows)).cast(
                SCHEMA.field(name).type
            )
        return known[:rows]

    def _sliced(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for first in range(0, batch.num_rows, self._rows):
            yield batch.slice(first, self._rows)


def _side_by_side(view: memoryview, group: list[_Opened]) -> tuple[memoryview, list[Span]]:
    """One piece of memory with the records of all batches, and where they lie in it."""
    if all(payload is None for _, _, payload in group):
        return view, [Span(position + HEADER_SIZE, position + header.size, header) for position, header, _ in group]
    spans: list[Span] = []
    payloads: list[Buffer] = []
    at = 0
    for position, header, payload in group:
        records = view[position + HEADER_SIZE : position + header.size] if payload is None else payload
        payloads.append(records)
        spans.append(Span(at, at + len(records), header))
        at += len(records)
    return memoryview(payloads[0] if len(payloads) == 1 else b"".join(payloads)), spans
