"""Records as documents: text and base64, the whole record, and the row of the console."""

from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compression import Codec
from tidemill.records.header import SEQUENCE_MAX, read_header
from tidemill.servers.http.core.payload_views import PayloadViews
from tidemill.servers.http.core.record_rows import line_of, record_line, row_of, texts_of, unreadable
from tidemill.servers.http.core.record_scan import DamagedBatch, KeptRecord, Outcome
from tidemill.wire.http.records import BatchFacts, RecordHeader, UnreadableRange

VIEWS = PayloadViews(lambda _: None, chars=30)


def kept(**batch: object) -> KeptRecord:
    made = build_batch([NewRecord(None, None), NewRecord(None, None)], base_offset=40, **batch)  # type: ignore[arg-type]
    return KeptRecord(
        3, read_header(made), Outcome.COMMITTED, 41, 1_000, b"k", 1, b"va", 500, (("h", b"\xff"), ("n", None)), 2, 7
    )


def test_bytes_are_text_and_otherwise_also_base64() -> None:
    assert texts_of(None) == (None, None)
    assert texts_of("é".encode()) == ("é", None)
    assert texts_of(b"a\xff") == ("a\ufffd", "Yf8=")


def test_a_line_has_the_whole_record() -> None:
    line = line_of("orders", kept())
    assert line == record_line("orders", 3, 41, 1_000, b"k", b"va", (("h", b"\xff"), ("n", None)))
    assert (line.topic, line.partition, line.offset, line.timestamp) == ("orders", 3, 41, 1_000)
    assert (line.key, line.key_base64, line.value, line.value_base64) == ("k", None, "va", None)
    assert line.headers == [
        RecordHeader(name="h", value="\ufffd", value_base64="/w=="),
        RecordHeader(name="n", value=None, value_base64=None),
    ]


def test_a_row_has_views_sizes_and_its_batch() -> None:
    row = row_of("orders", kept(codec=Codec.GZIP, leader_epoch=6), VIEWS, "text", "hex")
    assert (row.topic, row.partition, row.offset, row.timestamp) == ("orders", 3, 41, 1_000)
    assert (row.key_view.text, row.value_view.text, row.value_view.bytes) == ("k", "76 61", 500)
    assert (row.header_count, row.bytes, row.sequence, row.transaction) == (2, 508, None, "committed")
    assert row.batch == BatchFacts(
        base_offset=40,
        last_offset=41,
        records=2,
        bytes=row.batch.bytes,
        compression="gzip",
        leader_epoch=6,
        timestamp_type="create",
        transactional=False,
        producer_id=None,
        producer_epoch=None,
    )


def test_a_row_of_an_idempotent_producer_has_its_sequence() -> None:
    batch = {"producer_id": 9, "producer_epoch": 2, "transactional": True, "log_append_time": True}
    row = row_of("orders", kept(base_sequence=5, **batch), VIEWS, "text", "text")
    assert (row.sequence, row.batch.producer_id, row.batch.producer_epoch) == (6, 9, 2)
    assert (row.batch.transactional, row.batch.timestamp_type) == (True, "append")
    assert row_of("orders", kept(base_sequence=0, **batch), VIEWS, "text", "text").sequence == 1
    assert row_of("orders", kept(base_sequence=SEQUENCE_MAX, **batch), VIEWS, "text", "text").sequence == 0


def test_a_damaged_batch_says_where_reading_continues() -> None:
    assert unreadable(DamagedBatch(1, 5, 9, 10, "a wrong CRC")) == UnreadableRange(
        partition=1, offset=5, last_offset=9, resume=10, error="a wrong CRC"
    )
