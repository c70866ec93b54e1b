"""The first unread record is found behind markers, aborted transactions and holes."""

from tidemill.records.build import NewRecord, build_batch, end_marker
from tidemill.records.header import place
from tidemill.records.unread import UnreadPosition, unread_in


def batch(at: int, *times_ms: int, producer: int = -1) -> bytearray:
    made = build_batch(
        [NewRecord(None, b"v", timestamp=each) for each in times_ms],
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
    )
    place(made, 0, at, 0)
    return made


def marker(at: int, producer: int, *, commit: bool) -> bytearray:
    made = end_marker(producer, 0, commit, 1, 0)
    place(made, 0, at, 0)
    return made


def test_the_record_at_the_offset_counts_within_its_batch() -> None:
    log = [batch(0, 10, 20, 30), batch(3, 40)]
    assert unread_in(log, (), 0) == UnreadPosition(0, 10)
    assert unread_in(log, (), 2) == UnreadPosition(2, 30)
    assert unread_in(log, (), 3) == UnreadPosition(3, 40)
    assert unread_in(log, (), 4) == UnreadPosition(4)


def test_markers_and_aborted_records_are_nothing_to_read() -> None:
    log = [marker(1, 7, commit=True), batch(2, 20, producer=7), marker(3, 7, commit=False)]
    assert unread_in(log, [(7, 2)], 1) == UnreadPosition(4)
    assert unread_in([*log, batch(4, 40)], [(7, 2)], 1) == UnreadPosition(4, 40)
    assert unread_in(log, (), 1) == UnreadPosition(2, 20)


def test_a_batch_without_its_records_is_a_hole() -> None:
    hole = batch(5, 50)
    hole[23:27] = (2).to_bytes(4, "big")  # the last offset delta: three offsets, of which one has a record
    assert unread_in([hole], (), 5) == UnreadPosition(5, 50)
    assert unread_in([hole], (), 6) == UnreadPosition(8)


def test_a_batch_that_cannot_be_opened_has_the_time_of_its_header() -> None:
    damaged = batch(0, 10, 20)
    damaged[61:] = b"\xff" * (len(damaged) - 61)
    assert unread_in([damaged], (), 1) == UnreadPosition(1, 20)


def test_distance_and_age() -> None:
    assert UnreadPosition(4, 1_000).records_to(10) == 6
    assert UnreadPosition(11).records_to(10) == 0
    assert UnreadPosition(4, 1_000).age_s(3_500) == 2.5
    assert UnreadPosition(4, 1_000).age_s(500) == 0
    assert UnreadPosition(4).age_s(500) is None
    assert UnreadPosition(4, -1).age_s(500) is None  # Kafka's number for a record without a time
