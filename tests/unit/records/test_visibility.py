"""Which batches a reader may see."""

from tidemill.records.build import NewRecord, build_batch, end_marker
from tidemill.records.header import place
from tidemill.records.read import read_records
from tidemill.records.visibility import visible_batches


def batch(at: int, text: bytes, producer: int = -1) -> bytearray:
    made = build_batch(
        [NewRecord(None, text, timestamp=1)],
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


def test_aborted_transactions_are_dropped_up_to_their_marker_and_markers_always() -> None:
    log = [
        batch(0, b"plain"),
        batch(1, b"aborted", 7),
        batch(2, b"kept", 8),
        marker(3, 7, commit=False),
        batch(4, b"again", 7),
        marker(5, 8, commit=True),
        marker(6, 7, commit=True),
    ]
    found = list(visible_batches([b"".join(log[:4]), b"".join(log[4:])], [(7, 1)]))
    assert [header.base_offset for header, _ in found] == list(range(7))
    seen = [record.value for _, bytes_ in found if bytes_ is not None for record in read_records(bytes_)]
    assert seen == [b"plain", b"kept", b"again"]


def test_without_aborted_ones_only_markers_are_hidden() -> None:
    found = list(visible_batches([batch(0, b"open", 7) + marker(1, 7, commit=True)]))
    assert [bytes_ is None for _, bytes_ in found] == [False, True]
