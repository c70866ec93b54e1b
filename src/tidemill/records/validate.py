"""What a broker asks of a batch that a producer sends, as far as the batch alone can answer.

`check_produced` is on the hot path: one header, one CRC, no record is opened. Its order is Kafka's, because clients see
which error comes first. The count moves the offsets of the log, so a batch may claim no more records than its bytes
could stand for. The count of an uncompressed batch is exact (`check_lengths`); that walk takes time by the record, so
it comes when the size of the batch is known to be allowed.

The checks that need the records opened come last: `tidemill.validate=records` (`check_records`), another
`compression.type` (`recompress`) and keys on a compacted topic (`records_without_key`). There the CRC is known to be
right, so bytes that make no sense are the producer's fault: InvalidRecord, which is not retried, and not
CorruptMessage, which is.
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
from tidemill.records.read import RECORD_BYTES_MIN, read_payload, read_records, read_varint

RECORD_ERRORS_MAX = 100
"""Records that one answer names as refused; a batch may hold millions of them."""
ZSTD_VERSION_MIN = 7  # KIP-110: consumers that fetch with old versions cannot read zstd
LENGTH_BYTE_MIN = (RECORD_BYTES_MIN - 1) << 1  # the shortest length, which does not count its own byte, in zig-zag


def check_produced(buffer: Buffer, *, version: int) -> BatchHeader:
    """The header of the one batch that Produce of this `version` may carry; the error Kafka has for it otherwise."""
    if len(buffer) == 0:
        raise InvalidRecord("there is no record batch")
    if len(buffer) > MAGIC_AT and buffer[MAGIC_AT] != MAGIC:
        raise InvalidRecord(f"the record batch has magic {buffer[MAGIC_AT]}, not {MAGIC}")
    if len(buffer) < HEADER_SIZE:
        raise CorruptMessage(f"a record batch of {len(buffer)} bytes is cut within its header")
    header = BatchHeader._make(HEADER.unpack_from(buffer))
    if LENGTH_MIN <= header.length < len(buffer) - LENGTH_END:
        raise InvalidRecord("more than one record batch, or bytes behind it")
    if header.codec == Codec.ZSTD and version < ZSTD_VERSION_MIN:
        raise UnsupportedCompressionType(f"zstd needs Produce {ZSTD_VERSION_MIN}, this is {version}")
    if header.codec > Codec.ZSTD:
        raise UnsupportedCompressionType(f"there is no codec with number {header.codec}")
    if header.length != len(buffer) - LENGTH_END:
        raise CorruptMessage(f"a record batch says {header.length + LENGTH_END} bytes and has {len(buffer)}")
    check_crc(buffer, 0, header)
    _check_fields(header)
    return header


def _check_fields(header: BatchHeader) -> None:
    if header.count <= 0 or header.last_offset_delta + 1 != header.count:
        raise InvalidRecord(f"a batch counts {header.count} records and ends with delta {header.last_offset_delta}")
    if header.control:
        raise InvalidRecord("a producer cannot send markers")
    if header.attributes & DELETE_HORIZON_BIT:
        raise InvalidRecord("a producer cannot set the delete horizon of a batch: compaction does")
    if header.has_producer and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sent no sequence")
    if header.transactional and not header.has_producer:
        raise InvalidRecord("a transactional batch names no producer")
    possible_bytes = decompressed_bytes_max(header.codec, header.size - HEADER_SIZE)
    if header.count * RECORD_BYTES_MIN > possible_bytes:
        raise InvalidRecord(f"a batch counts {header.count} records, more than its {header.size} bytes can hold")


def check_lengths(payload: memoryview | bytes, count: int) -> None:
    """InvalidRecord unless `count` records, by their lengths, fill the payload exactly; no record is opened."""
    at, shortest = 0, LENGTH_BYTE_MIN
    try:
        # This loop runs for every uncompressed record that is produced, so lengths of one and two bytes are written
        # out. Zig-zag makes a length odd when it is negative.
        for index in range(count):
            low = payload[at]
            if low & 1 or low < shortest:
                raise InvalidRecord(f"record {index} has an impossible length")
            if low < 0x80:
                at += (low >> 1) + 1
            elif (high := payload[at + 1]) < 0x80:
                at += (low >> 1) + (high << 6) - 62
            else:
                size, at = read_varint(payload, at)
                at += size
    except (IndexError, CorruptMessage):
        raise InvalidRecord(f"a batch counts {count} records, more than it holds") from None
    if at != len(payload):
        raise InvalidRecord(f"the lengths of {count} records add up to {at} bytes, the batch holds {len(payload)}")


def check_records(batch: Buffer, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> None:
    """InvalidRecord unless every record of the batch can be read; for a batch that `check_produced` has passed."""
    try:
        for _ in read_records(batch, limit_bytes=limit_bytes):
            pass
    except CorruptMessage as error:
        raise invalid_record(error) from None


def recompress(
    batch: bytearray | memoryview, codec: Codec, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> bytearray | memoryview:
    """The same batch with its records in `codec`; `batch` itself when they are already."""
    header = read_header(batch)
    if header.codec == codec:
        return batch
    try:
        payload = read_payload(batch, header, limit_bytes=limit_bytes)
    except CorruptMessage as error:
        raise invalid_record(error) from None
    check_lengths(payload, header.count)
    return wrap(header._replace(attributes=header.attributes & ~CODEC_BITS | codec), payload)


def records_without_key(batch: Buffer, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[int]:
    """The indexes within the batch of the first RECORD_ERRORS_MAX records that a compacted topic refuses."""
    missing: list[int] = []
    try:
        for index, record in enumerate(read_records(batch, limit_bytes=limit_bytes)):
            if record.key is None and len(missing) < RECORD_ERRORS_MAX:
                missing.append(index)
    except CorruptMessage as error:
        raise invalid_record(error) from None
    return missing


def invalid_record(error: CorruptMessage) -> InvalidRecord:
    """The error that a producer gets for bytes that make no sense.

    It keeps no traceback of the first one: the frames in it hold everything that was decompressed.
    """
    error.__traceback__ = None
    return InvalidRecord(f"the records cannot be read: {error}")
