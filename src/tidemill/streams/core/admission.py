"""Checks a batch against the settings of its topic before it may enter the log.

`check_produced` has validated the batch itself. This module checks its size, records, timestamps, keys and codec
against the topic. Compressed records are not decoded, unless the topic is compacted, uses another codec or sets
`tidemill.validate=records`. The result is the batch to store. Its bytes are unchanged unless the topic uses another
codec or the broker's time.
"""

from tidemill.model.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordListTooLarge
from tidemill.model.topic_settings import TopicSettings
from tidemill.records.compression import Codec
from tidemill.records.header import BatchHeader, read_header, stamp_append_time
from tidemill.records.validate import check_records, recompress, records_without_key

KEEP_CODEC = "producer"
EVERY_RECORD = "records"
NO_TIMESTAMP = -1
RECORDS_OPENED_MAX = 1_000_000
"""The largest number of records in one batch when the topic's settings require decoding."""
_CODECS = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


def opens(header: BatchHeader, settings: TopicSettings) -> bool:
    """Whether `admit` decodes the batch."""
    return settings.compacted or settings.tidemill_validate == EVERY_RECORD or _recompresses(header, settings)


def _recompresses(header: BatchHeader, settings: TopicSettings) -> bool:
    return settings.compression_type != KEEP_CODEC and _CODECS[settings.compression_type] != header.codec


def admit(
    batch: bytearray | memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int
) -> tuple[bytearray | memoryview, BatchHeader]:
    """Return the batch as the topic stores it, with its header. Raise the error when the topic rejects it."""
    _check_size(len(batch), settings)
    if settings.compacted:
        _check_keys(batch)
    elif header.codec == Codec.NONE or settings.tidemill_validate == EVERY_RECORD:
        check_records(batch)
    if not settings.log_append_time:
        _check_times(header, settings, now_ms)
    if _recompresses(header, settings):
        batch = recompress(batch, _CODECS[settings.compression_type])
        _check_size(len(batch), settings)
        header = read_header(batch)
    if settings.log_append_time:
        stamp_append_time(batch, 0, now_ms)
        header = read_header(batch)
    return batch, header


def _check_size(size: int, settings: TopicSettings) -> None:
    if size > settings.max_message_bytes:
        raise MessageTooLarge(f"a batch of {size} bytes is larger than max.message.bytes={settings.max_message_bytes}")
    if size > settings.segment_bytes:
        raise RecordListTooLarge(f"a batch of {size} bytes is larger than segment.bytes={settings.segment_bytes}")


def check_opened(header: BatchHeader, settings: TopicSettings) -> None:
    """Reject a batch that takes too long to decode: a million bytes can hold millions of records."""
    _check_size(header.size, settings)
    if header.count > RECORDS_OPENED_MAX:
        raise RecordListTooLarge(
            f"a batch of {header.count} records; this topic decodes records and takes {RECORDS_OPENED_MAX} at most"
        )


def _check_keys(batch: bytearray | memoryview) -> None:
    missing = records_without_key(batch)
    if missing:
        error = InvalidRecord("a compacted topic requires a key on every record")
        error.record_errors = tuple((index, "the record has no key") for index in missing)
        raise error


def _check_times(header: BatchHeader, settings: TopicSettings, now_ms: int) -> None:
    if header.log_append_time:
        raise InvalidTimestamp("a producer must not set the log append time; send create time")
    if header.max_timestamp > now_ms + settings.message_timestamp_after_max_ms:
        raise InvalidTimestamp(f"timestamp {header.max_timestamp} is too far ahead of the broker's {now_ms}")
    if NO_TIMESTAMP < header.base_timestamp < now_ms - settings.message_timestamp_before_max_ms:
        raise InvalidTimestamp(f"timestamp {header.base_timestamp} is too far behind the broker's {now_ms}")
