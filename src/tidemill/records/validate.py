"""What a broker asks of a batch that a producer sends, as far as the batch alone can answer.

`check_produced` is on the hot path: one header, one CRC, no record is opened. Its order is Kafka's, because clients see
which error comes first. The topic's own demands that need the records opened come after it: another
`compression.type` (`recompress`) and keys on a compacted topic (`records_without_key`). There the CRC is known to be
right, so bytes that make no sense are the producer's doing: InvalidRecord, which is not retried, and not
CorruptMessage, which is.
"""

from tidemill.model.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from tidemill.records.build import wrap
from tidemill.records.compression import DECOMPRESSED_BYTES_MAX, Codec
from tidemill.records.header import (
    CODEC_BITS,
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
from tidemill.records.read import read_payload, read_records

ZSTD_VERSION_MIN = 7  # KIP-110: consumers that fetch with old versions cannot read zstd


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
    if header.has_producer and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sent no sequence")
    if header.transactional and not header.has_producer:
        raise InvalidRecord("a transactional batch names no producer")


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
        raise InvalidRecord(str(error)) from error
    return wrap(header._replace(attributes=header.attributes & ~CODEC_BITS | codec), payload)


def records_without_key(batch: Buffer, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[int]:
    """The indexes within the batch of the records that a compacted topic refuses."""
    try:
        records = read_records(batch, limit_bytes=limit_bytes)
        return [index for index, record in enumerate(records) if record.key is None]
    except CorruptMessage as error:
        raise InvalidRecord(str(error)) from error
