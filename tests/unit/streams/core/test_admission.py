"""The rules of a topic for a batch: size, times, keys, records and codec."""

from typing import Any

import pytest

from tidemill.model.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge, RecordListTooLarge
from tidemill.model.topic_settings import TopicSettings, parse
from tidemill.records.build import NewRecord, build_batch, wrap
from tidemill.records.compression import Codec
from tidemill.records.header import BatchHeader, read_header
from tidemill.records.incremental_compression import compress
from tidemill.records.read import read_records
from tidemill.streams.core import admission
from tidemill.streams.core.admission import admit, check_opened, opens

NOW_MS = 1_000_000


def topic(**overrides: Any) -> TopicSettings:
    return parse({name.replace("_", "."): str(value) for name, value in overrides.items()})


def batch(*times_ms: int, key: bytes | None = b"k", codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([NewRecord(key, b"value", (), each) for each in times_ms or (NOW_MS,)], codec=codec)


def damaged(codec: Codec) -> bytearray:
    """A batch whose records cannot be read, with a header and a checksum that are right."""
    return bytearray(wrap(read_header(batch(codec=codec)), compress(codec, b"\xff" * 9)))


def admitted(data: bytearray, settings: TopicSettings) -> tuple[bytes, BatchHeader]:
    stored, header = admit(data, read_header(data), settings, NOW_MS)
    assert header == read_header(stored)
    return bytes(stored), header


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_is_stored_unchanged_by_default(codec: Codec) -> None:
    data = batch(codec=codec)
    assert admitted(data, topic())[0] == bytes(data)


@pytest.mark.parametrize(
    ("codec", "validate", "is_checked"),
    [(Codec.NONE, "header", True), (Codec.LZ4, "header", False), (Codec.LZ4, "records", True)],
)
def test_compressed_records_are_checked_on_request_only(codec: Codec, validate: str, is_checked: bool) -> None:
    settings = topic(tidemill_validate=validate)
    if is_checked:
        with pytest.raises(InvalidRecord):
            admitted(damaged(codec), settings)
    else:
        assert admitted(damaged(codec), settings)[0] == bytes(damaged(codec))


def test_the_size_of_a_batch_is_limited_by_the_topic_and_by_its_segments() -> None:
    data = batch()
    admitted(data, topic(max_message_bytes=len(data), segment_bytes=len(data)))
    with pytest.raises(MessageTooLarge, match=r"larger than max\.message\.bytes"):
        admitted(data, topic(max_message_bytes=len(data) - 1))
    with pytest.raises(RecordListTooLarge, match=r"larger than segment\.bytes"):
        admitted(data, topic(segment_bytes=len(data) - 1))


def test_a_compacted_topic_names_the_records_without_a_key() -> None:
    settings = topic(cleanup_policy="compact")
    admitted(batch(), settings)
    mixed = build_batch([NewRecord(key, b"v", (), NOW_MS) for key in (b"k", None, b"", None)])
    with pytest.raises(InvalidRecord) as caught:
        admitted(mixed, settings)
    assert [index for index, _ in caught.value.record_errors] == [1, 3]


def test_timestamps_are_limited_on_both_sides() -> None:
    settings = topic(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=50)
    admitted(batch(NOW_MS - 100, NOW_MS + 50), settings)
    admitted(batch(-1), settings)
    with pytest.raises(InvalidTimestamp, match="too far ahead"):
        admitted(batch(NOW_MS, NOW_MS + 51), settings)
    with pytest.raises(InvalidTimestamp, match="too far behind"):
        admitted(batch(NOW_MS - 101, NOW_MS), settings)
    with pytest.raises(InvalidTimestamp, match="too far behind"):
        admitted(batch(0), settings)


def test_a_topic_with_append_time_replaces_any_timestamp() -> None:
    settings = topic(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=100)
    stored, header = admitted(batch(5), settings)
    assert (header.log_append_time, header.max_timestamp) == (True, NOW_MS)
    assert [record.timestamp for record in read_records(stored)] == [NOW_MS]
    again, _ = admitted(bytearray(stored), settings)
    assert again == stored
    with pytest.raises(InvalidTimestamp, match="must not set the log append time"):
        admitted(bytearray(stored), topic())


@pytest.mark.parametrize(("name", "codec"), [("uncompressed", Codec.NONE), ("zstd", Codec.ZSTD)])
def test_a_topic_with_a_codec_compresses_again(name: str, codec: Codec) -> None:
    for sent in Codec:
        stored, header = admitted(batch(codec=sent), topic(compression_type=name))
        assert header.codec == codec
        assert list(read_records(stored)) == list(read_records(batch()))


def test_the_size_counts_after_the_compression() -> None:
    small = build_batch([NewRecord(b"k", bytes(1_000), (), NOW_MS)], codec=Codec.ZSTD)
    with pytest.raises(MessageTooLarge):
        admitted(small, topic(compression_type="uncompressed", max_message_bytes=500))


@pytest.mark.parametrize(
    ("settings", "is_opened"),
    [
        ({}, False),
        ({"cleanup_policy": "compact"}, True),
        ({"tidemill_validate": "records"}, True),
        ({"compression_type": "gzip"}, True),
        ({"compression_type": "lz4"}, False),
    ],
)
def test_a_batch_is_decoded_where_the_topic_requires_it(settings: dict[str, str], is_opened: bool) -> None:
    assert opens(read_header(batch(codec=Codec.LZ4)), topic(**settings)) is is_opened


def test_the_records_of_a_batch_to_decode_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "RECORDS_OPENED_MAX", 2)
    check_opened(read_header(batch(1, 2)), topic())
    with pytest.raises(RecordListTooLarge, match="a batch of 3 records"):
        check_opened(read_header(batch(1, 2, 3)), topic())
    with pytest.raises(MessageTooLarge):
        check_opened(read_header(batch(1)), topic(max_message_bytes=10))
