"""Validates a batch that a producer sends, without knowledge of its topic.

`check_produced` is on the hot path: one header, one CRC, no decoded record. Its order is Kafka's, because clients see
which error comes first. The record count moves the offsets of the log, so a batch must not claim more records than its
bytes can hold.

`check_records` runs if records are uncompressed, or if the topic requires it (`tidemill.validate=records`). It takes
time per record, so it runs after the batch size was accepted. A change of `compression.type` (`recompress`) and the key
check of a compacted topic (`records_without_key`) also check the records. The CRC is valid then, so malformed bytes are
the producer's fault. The error is InvalidRecord, which is not retried, and not CorruptMessage, which is.
"""

from tidemill.model.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from tidemill.records.build import wrap
from tidemill.records.compression import DECOMPRESSED_BYTES_MAX, Codec, decompressed_bytes_max
from tidemill.records.header import (
    CODEC_BITS,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    LENGTH_MIN,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    Buffer,
    check_crc,
    read_header,
)
from tidemill.records.read import RECORD_BYTES_MIN, read_payload, read_records, read_varint, scan_records

RECORD_ERRORS_MAX = 100
"""The largest number of rejected records in one response. A batch may hold millions of them."""
ZSTD_VERSION_MIN = 7  # KIP-110: consumers with older Fetch versions cannot read zstd
TIMESTAMP_DELTA_BYTES_MAX = 6  # 42 bits: 69 years around the timestamp of the batch


def check_produced(buffer: Buffer, *, version: int) -> BatchHeader:
    """Return the header of the one batch that Produce of this `version` may carry. Raise Kafka's error otherwise."""
    if len(buffer) == 0:
        raise InvalidRecord("the request has no record batch for this partition")
    if len(buffer) > MAGIC_AT and buffer[MAGIC_AT] != MAGIC:
        raise InvalidRecord(f"the record batch has magic {buffer[MAGIC_AT]}, not {MAGIC}")
    if len(buffer) < HEADER_SIZE:
        raise CorruptMessage(f"a record batch of {len(buffer)} bytes is truncated within its header")
    header = BatchHeader._make(HEADER.unpack_from(buffer))
    if LENGTH_MIN <= header.length < len(buffer) - LENGTH_END:
        raise InvalidRecord("the request has more than one record batch for this partition, or extra bytes after it")
    if header.codec == Codec.ZSTD and version < ZSTD_VERSION_MIN:
        raise UnsupportedCompressionType(
            f"zstd requires Produce version {ZSTD_VERSION_MIN}, the request has {version}; upgrade the client"
        )
    if header.codec > Codec.ZSTD:
        raise UnsupportedCompressionType(f"unknown compression codec {header.codec}; use 0 to 4")
    if header.length != len(buffer) - LENGTH_END:
        raise CorruptMessage(f"a record batch claims {header.length + LENGTH_END} bytes and has {len(buffer)}")
    check_crc(buffer, 0, header)
    _check_fields(header)
    return header


def _check_fields(header: BatchHeader) -> None:
    if header.count <= 0 or header.last_offset_delta + 1 != header.count:
        raise InvalidRecord(f"a batch of {header.count} records has the last offset delta {header.last_offset_delta}")
    if header.control:
        raise InvalidRecord("a producer must not send control batches")
    if header.attributes & DELETE_HORIZON_BIT:
        raise InvalidRecord("a producer must not set the delete horizon of a batch; only compaction sets it")
    if header.has_producer and header.base_sequence < 0:
        raise InvalidRecord(f"a batch of producer {header.producer_id} has no sequence")
    if header.transactional and not header.has_producer:
        raise InvalidRecord("a transactional batch has no producer id")
    possible_bytes = decompressed_bytes_max(header.codec, header.size - HEADER_SIZE)
    if header.count * RECORD_BYTES_MIN > possible_bytes:
        raise InvalidRecord(f"a batch claims {header.count} records, more than its {header.size} bytes can hold")


def check_records(batch: Buffer, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> None:
    """Raise InvalidRecord unless every record of the batch can be read. `check_produced` must have passed."""
    header = read_header(batch)
    if header.codec == Codec.NONE:
        check_payload(memoryview(batch)[HEADER_SIZE : header.size], header)
    else:
        check_payload(_decompressed(batch, header, limit_bytes), header)


def check_payload(payload: memoryview | bytes, header: BatchHeader) -> None:
    """Raise InvalidRecord unless the payload has exactly the records that the header counts."""
    if is_plain(payload, header.count):
        return
    try:
        for _ in scan_records(bytes(payload), header):
            pass
    except CorruptMessage as error:
        raise invalid_record(error) from None


def is_plain(payload: memoryview | bytes, count: int) -> bool:
    """Whether `count` records fill the payload exactly, numbered from 0, with every length inside its record.

    No record is decoded. False also means that a full check is needed, for example after an unusually long varint.
    """
    # This loop runs for every uncompressed record that is produced, so varints of one and two bytes are inlined.
    # Zig-zag doubles a number and makes it odd when it is negative; -1 (the byte 1) is a missing key or value. The
    # position only moves forward, so one comparison at a record's end proves that all its lengths were inside.
    at = 0
    try:
        for doubled_index in range(0, count * 2, 2):
            low = payload[at]
            if not low & 0x81:
                end = at + (low >> 1) + 1
                at += 2
            elif not low & 1 and (high := payload[at + 1]) < 0x80:
                end = at + (low >> 1) + (high << 6) - 62
                at += 3
            else:
                size, at = read_varint(payload, at)
                end = at + size
                at += 1
            if payload[at] >= 0x80:
                at = at + 1 if payload[at + 1] < 0x80 else _skip_timestamp(payload, at + 1)
            low = payload[at + 1]
            at += 2
            if low >= 0x80:
                low += (payload[at] - 1) << 7
                at += 1
                if low >= 0x4000:
                    low += (payload[at] - 1) << 14
                    at += 1
            if low != doubled_index:
                return False
            low = payload[at]
            at = at + (low >> 1) + 1 if not low & 0x81 else at + 1 if low == 1 else _skip_bytes(payload, at)
            low = payload[at]
            if not low & 0x81:
                at += (low >> 1) + 1
            elif not low & 1 and (high := payload[at + 1]) < 0x80:
                at += (low >> 1) + (high << 6) - 62
            else:
                at = _skip_bytes(payload, at)
            at = at + 1 if not payload[at] else _skip_headers(payload, at)
            if at != end:
                return False
    except (IndexError, CorruptMessage):
        return False
    return at == len(payload)


def _skip_timestamp(payload: memoryview | bytes, at: int) -> int:
    """Return the last byte of a timestamp delta. Raise CorruptMessage if the timestamp could exceed 64 bits."""
    for last in range(at + 1, at + TIMESTAMP_DELTA_BYTES_MAX):
        if payload[last] < 0x80:
            return last
    raise CorruptMessage("a record timestamp is too far from that of its batch")


def _skip_bytes(payload: memoryview | bytes, at: int) -> int:
    size, at = read_varint(payload, at)
    if size < -1:
        raise CorruptMessage(f"a key or value has the invalid length {size}")
    return at + max(size, 0)


def _skip_headers(payload: memoryview | bytes, at: int) -> int:
    count, at = read_varint(payload, at)
    if not 0 <= count <= len(payload) - at:
        raise CorruptMessage(f"a record has the invalid header count {count}")
    for _ in range(count):
        low = payload[at]
        if low & 1:
            raise CorruptMessage("a header has no key")
        at = at + (low >> 1) + 1 if low < 0x80 else _skip_bytes(payload, at)
        low = payload[at]
        at = at + (low >> 1) + 1 if not low & 0x81 else _skip_bytes(payload, at)
    return at


def recompress(
    batch: bytearray | memoryview, codec: Codec, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytearray | memoryview:
    """Return the batch with its records in `codec`, or `batch` itself when they already are."""
    header = read_header(batch)
    if header.codec == codec:
        return batch
    payload = _decompressed(batch, header, limit_bytes)
    check_payload(payload, header)
    return wrap(header._replace(attributes=header.attributes & ~CODEC_BITS | codec), payload)


def _decompressed(batch: Buffer, header: BatchHeader, limit_bytes: int) -> bytes:
    try:
        return read_payload(batch, header, limit_bytes=limit_bytes)
    except CorruptMessage as error:
        raise invalid_record(error) from None


def records_without_key(batch: Buffer, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[int]:
    """Return the indexes of the first RECORD_ERRORS_MAX records that a compacted topic rejects."""
    missing: list[int] = []
    try:
        for index, record in enumerate(read_records(batch, limit_bytes=limit_bytes)):
            if record.key is None and len(missing) < RECORD_ERRORS_MAX:
                missing.append(index)
    except CorruptMessage as error:
        raise invalid_record(error) from None
    return missing


def invalid_record(error: CorruptMessage) -> InvalidRecord:
    """Return the error that a producer gets for malformed bytes.

    It drops the traceback of the first error, because its frames hold all decompressed data.
    """
    error.__traceback__ = None
    return InvalidRecord(f"the records cannot be read: {error}")
