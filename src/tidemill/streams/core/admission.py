"""What a topic's settings ask of a batch before it may enter the log.

`check_produced` has checked the batch by itself; here it meets its topic: size, records, timestamps, keys, codec.
Compressed records stay closed, unless the topic is compacted, wants another codec or sets `tidemill.validate=records`.
The result is the batch to store: the same bytes, or new ones when the topic wants another codec or the broker's time.
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
"""Records of one batch, where a topic's settings ask for them to be opened."""
_CODECS = {"uncompressed": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


def opens(header: BatchHeader, settings: TopicSettings) -> bool:
    """Whether `admit` opens the batch."""
    return settings.compacted or settings.tidemill_validate == EVERY_RECORD or _recompresses(header, settings)


def _recompresses(header: BatchHeader, settings: TopicSettings) -> bool:
    return settings.compression_type != KEEP_CODEC and _CODECS[settings.compression_type] != header.codec


def admit(
    batch: bytearray | memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int
) -> tuple[bytearray | memoryview, BatchHeader]:
    """The batch as the topic stores it, with its header; the error when the topic refuses it."""
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
    """Refuse a batch that would take too long to open: a million bytes may hold millions of records."""
    _check_size(header.size, settings)
    if header.count > RECORDS_OPENED_MAX:
        raise RecordListTooLarge(
            f"a batch of {header.count} records; a topic whose records are opened takes {RECORDS_OPENED_MAX} at most"
        )


def _check_keys(batch: bytearray | memoryview) -> None:
    missing = records_without_key(batch)
    if missing:
        error = InvalidRecord("a compacted topic takes only records with a key")
        error.record_errors = tuple((index, "the record has no key") for index in missing)
        raise error


def _check_times(header: BatchHeader, settings: TopicSettings, now_ms: int) -> None:
    if header.log_append_time:
        raise InvalidTimestamp("a producer cannot set the broker's time")
    if header.max_timestamp > now_ms + settings.message_timestamp_after_max_ms:
        raise InvalidTimestamp(f"timestamp {header.max_timestamp} is too far ahead of the broker's {now_ms}")
    if NO_TIMESTAMP < header.base_timestamp < now_ms - settings.message_timestamp_before_max_ms:
        raise InvalidTimestamp(f"timestamp {header.base_timestamp} is too far behind the broker's {now_ms}")
