"""Finds the trace contexts in the headers of a record batch.

A batch without the word `traceparent` is not decoded: an uncompressed one is searched as bytes, a compressed one is
decompressed first, up to a limit. Batches may be damaged or hostile; then they have no traces.
"""

from itertools import islice
from typing import NamedTuple

from tidemill.model.errors import KafkaError
from tidemill.records.compression import Codec
from tidemill.records.header import HEADER_SIZE, BatchHeader, Buffer
from tidemill.records.read import read_payload, scan_records
from tidemill.records.record import Headers
from tidemill.tracing.core.sampling import Sampler
from tidemill.tracing.core.trace_context import TRACEPARENT, TraceContext, parse_traceparent

OPENED_BYTES_MAX = 1024 * 1024
"""A batch with more bytes, compressed or not, is not opened."""
RECORDS_READ_MAX = 1_000
TRACES_MAX = 16
"""The most traces of one batch that get spans. A batch with more records of different traces has them in its log."""
_NAME = TRACEPARENT.encode()


class RecordTrace(NamedTuple):
    """A context, and the position in its batch of the first record that has it."""

    context: TraceContext
    offset_delta: int


class OpenedBatch(NamedTuple):
    """The traces of a batch, and how many bytes were read to find them."""

    traces: tuple[RecordTrace, ...] = ()
    opened_bytes: int = 0


def traces_in(batch: Buffer, header: BatchHeader, sampler: Sampler) -> OpenedBatch:
    """The sampled traces of a batch, each once."""
    if header.control or header.size > OPENED_BYTES_MAX:
        return OpenedBatch()
    if header.codec == Codec.NONE and _NAME not in bytes(batch[HEADER_SIZE : header.size]):
        return OpenedBatch(opened_bytes=header.size)
    try:
        data = read_payload(batch, header, limit_bytes=OPENED_BYTES_MAX)
    except KafkaError:
        return OpenedBatch(opened_bytes=OPENED_BYTES_MAX)
    if _NAME not in data:
        return OpenedBatch(opened_bytes=len(data))
    try:
        return OpenedBatch(_sampled(data, header, sampler), len(data))
    except KafkaError:
        return OpenedBatch(opened_bytes=len(data))


def _sampled(data: bytes, header: BatchHeader, sampler: Sampler) -> tuple[RecordTrace, ...]:
    found: dict[TraceContext, RecordTrace] = {}
    for record in islice(scan_records(data, header), RECORDS_READ_MAX):
        context = _context_in(record.headers)
        if context is not None and context not in found and sampler.samples(context):
            found[context] = RecordTrace(context, record.offset - header.base_offset)
            if len(found) == TRACES_MAX:
                break
    return tuple(found.values())


def _context_in(headers: Headers) -> TraceContext | None:
    """The context of a record; as the standard demands, a record with several of them has none."""
    values = [value for name, value in headers if name == TRACEPARENT]
    return parse_traceparent(values[0]) if len(values) == 1 and values[0] is not None else None
