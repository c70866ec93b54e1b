"""The records in fetched batches: outcomes of transactions, damage, and the budget."""

from collections.abc import Iterable

from tidemill.records.build import NewRecord, build_batch, end_marker
from tidemill.records.header import place
from tidemill.servers.http.core.record_scan import (
    HEADER_BYTES_KEPT,
    HEADERS_KEPT,
    DamagedBatch,
    Outcome,
    ScanBudget,
    ScannedRecord,
    keep,
    scan_batches,
)

PRODUCER = 9


def log(*batches: bytearray) -> tuple[bytes, list[int]]:
    """The batches one after the other, and the base offset of each."""
    offset, bases = 0, []
    for batch, count in ((each, int.from_bytes(each[57:61], "big")) for each in batches):
        place(batch, 0, offset, 0)
        bases.append(offset)
        offset += count
    return b"".join(batches), bases


def plain(*values: bytes) -> bytearray:
    return build_batch([NewRecord(None, value) for value in values])


def inside(*values: bytes) -> bytearray:
    return build_batch(
        [NewRecord(None, value) for value in values],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def outcomes(found: Iterable[ScannedRecord | DamagedBatch]) -> list[tuple[bytes | None, Outcome]]:
    return [(each.record.value, each.outcome) for each in found if isinstance(each, ScannedRecord)]


def test_outcomes_of_transactions() -> None:
    batches, bases = log(
        inside(b"a"),
        plain(b"b"),
        end_marker(PRODUCER, 0, False, 0),
        inside(b"c"),
        end_marker(PRODUCER, 0, True, 0),
        inside(b"d"),
        plain(b"e"),
    )
    found = scan_batches(0, batches, ((PRODUCER, 0),), 0, stable_end=bases[5])
    assert outcomes(found) == [
        (b"a", Outcome.ABORTED),
        (b"b", Outcome.NONE),
        (b"c", Outcome.COMMITTED),
        (b"d", Outcome.OPEN),
        (b"e", Outcome.NONE),
    ]


def test_aborted_transactions_may_be_listed_in_any_order() -> None:
    first, second = end_marker(PRODUCER, 0, False, 0), end_marker(PRODUCER, 0, False, 0)
    batches, bases = log(inside(b"a"), first, plain(b"b"), inside(b"c"), second)
    for order in (1, -1):
        aborted = ((PRODUCER, bases[0]), (PRODUCER, bases[3]))[::order]
        found = outcomes(scan_batches(0, batches, aborted, 0, stable_end=9))
        assert found == [(b"a", Outcome.ABORTED), (b"b", Outcome.NONE), (b"c", Outcome.ABORTED)]


def test_records_before_the_start_are_left_out() -> None:
    batches, _ = log(plain(b"a", b"b", b"c"), plain(b"d"))
    assert [value for value, _ in outcomes(scan_batches(0, batches, (), 2, stable_end=9))] == [b"c", b"d"]


def test_damage_names_the_batch_and_reading_continues() -> None:
    batches, _ = log(plain(b"a"), plain(b"b", b"c"), plain(b"d"))
    broken = bytearray(batches)
    broken[len(plain(b"a")) + 70] ^= 1
    found = list(scan_batches(4, broken, (), 0, stable_end=9))
    [damaged] = [each for each in found if isinstance(each, DamagedBatch)]
    assert damaged[:4] == (4, 1, 2, 3)
    assert "CRC" in damaged.error
    assert [value for value, _ in outcomes(found)] == [b"a", b"d"]


def test_a_truncated_last_batch_is_left_out() -> None:
    batches, _ = log(plain(b"a"), plain(b"b"))
    assert outcomes(scan_batches(0, batches[:-1], (), 0, stable_end=9)) == [(b"a", Outcome.NONE)]


def test_kept_records_are_cut() -> None:
    headers = tuple(("n" * 2_000, b"v" * 2_000) for _ in range(100))
    batch = build_batch([NewRecord(b"k" * 100, b"v" * 100, headers)])
    [found] = scan_batches(0, batch, (), 0, stable_end=9)
    assert isinstance(found, ScannedRecord)
    cut, whole = keep(found, 10), keep(found, None)
    assert (cut.key, cut.key_bytes, cut.value, cut.value_bytes) == (b"k" * 10, 100, b"v" * 10, 100)
    assert (len(cut.headers), cut.header_count, cut.header_bytes) == (HEADERS_KEPT, 100, 400_000)
    assert {(len(name), len(value or b"")) for name, value in cut.headers} == {(HEADER_BYTES_KEPT, HEADER_BYTES_KEPT)}
    [empty] = scan_batches(0, build_batch([NewRecord(None, None, (("n", None),))]), (), 0, stable_end=9)
    assert isinstance(empty, ScannedRecord)
    for kept in (keep(empty, 10), keep(empty, None)):
        assert (kept.key, kept.key_bytes, kept.value, kept.value_bytes) == (None, 0, None, 0)
        assert (kept.headers, kept.header_bytes) == ((("n", None),), 1)
    assert (whole.key, whole.value, whole.headers) == (b"k" * 100, b"v" * 100, headers)


def test_the_budget_names_the_limit_that_is_reached() -> None:
    now = [0.0]
    budget = ScanBudget(lambda: now[0], records=10, size_bytes=2_000, duration_ms=300)
    assert budget.limit is None
    now[0] = 300
    found = [budget.limit]
    budget.size_bytes = 2_000
    found.append(budget.limit)
    budget.records = 10
    assert [*found, budget.limit] == ["300 ms", "2,000 bytes", "10 records"]
    assert budget.milliseconds == 300
