"""Makes the documents of records: the shape that commands print too, and the rows of the console."""

from base64 import b64encode

from tidemill.records.compression import Codec
from tidemill.records.header import SEQUENCE_MAX, BatchHeader
from tidemill.records.record import Headers
from tidemill.servers.http.core.payload_views import PayloadViews
from tidemill.servers.http.core.record_scan import DamagedBatch, KeptRecord
from tidemill.wire.http.records import (
    BatchFacts,
    PayloadFormat,
    RecordHeader,
    RecordLine,
    RecordRow,
    UnreadableRange,
)

Texts = tuple[str | None, str | None]
"""Bytes as text, and as base64 where they are not text."""


def texts_of(payload: bytes | None) -> Texts:
    """A key, a value or a header as JSON can hold it."""
    if payload is None:
        return None, None
    try:
        return payload.decode(), None
    except UnicodeDecodeError:
        return payload.decode(errors="replace"), b64encode(payload).decode()


def headers_of(headers: Headers) -> list[RecordHeader]:
    """The headers in their order."""
    found = []
    for name, value in headers:
        text, base64 = texts_of(value)
        found.append(RecordHeader(name=name, value=text, value_base64=base64))
    return found


def record_line(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> RecordLine:
    """One record, whole."""
    key_text, key_base64 = texts_of(key)
    value_text, value_base64 = texts_of(value)
    return RecordLine(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp=timestamp,
        key=key_text,
        key_base64=key_base64,
        value=value_text,
        value_base64=value_base64,
        headers=headers_of(headers),
    )


def line_of(topic: str, found: KeptRecord) -> RecordLine:
    """A record that was kept whole."""
    return record_line(topic, found.partition, found.offset, found.timestamp, found.key, found.value, found.headers)


def row_of(
    topic: str, found: KeptRecord, views: PayloadViews, key_format: PayloadFormat, value_format: PayloadFormat
) -> RecordRow:
    """A row of the console."""
    key_text, key_base64 = texts_of(found.key)
    value_text, value_base64 = texts_of(found.value)
    header = found.header
    return RecordRow(
        topic=topic,
        partition=found.partition,
        offset=found.offset,
        timestamp=found.timestamp,
        key=key_text,
        key_base64=key_base64,
        value=value_text,
        value_base64=value_base64,
        headers=headers_of(found.headers),
        key_view=views.view(found.key, key_format, size=found.key_bytes),
        value_view=views.view(found.value, value_format, size=found.value_bytes),
        header_count=found.header_count,
        bytes=found.key_bytes + found.value_bytes + found.header_bytes,
        sequence=_sequence(header, found.offset),
        transaction=found.outcome.value,
        batch=_batch_facts(header),
    )


def _sequence(header: BatchHeader, offset: int) -> int | None:
    if header.base_sequence < 0:
        return None
    return (header.base_sequence + offset - header.base_offset) & SEQUENCE_MAX


def _batch_facts(header: BatchHeader) -> BatchFacts:
    has_producer = header.has_producer
    return BatchFacts(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        records=header.count,
        bytes=header.size,
        compression=Codec(header.codec).name.lower(),
        leader_epoch=header.leader_epoch,
        timestamp_type="append" if header.log_append_time else "create",
        transactional=header.transactional,
        producer_id=header.producer_id if has_producer else None,
        producer_epoch=header.producer_epoch if has_producer else None,
    )


def unreadable(batch: DamagedBatch) -> UnreadableRange:
    """A batch that cannot be read."""
    return UnreadableRange(
        partition=batch.partition,
        offset=batch.base_offset,
        last_offset=batch.last_offset,
        resume=batch.resume,
        error=batch.error,
    )
