"""Delivery headers of a batch: which records wait, are cancelled or stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.errors import InvalidRecord
from tidemill.model.timeline_errors import ClockInDoubt
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import read_header
from tidemill.records.record import Record
from tidemill.scheduling.core import batch_split
from tidemill.scheduling.core.batch_split import BatchSplit, delivered_mark, read_waiting, split_batch

NOW_MS = 1_800_000_000_000
Headers = tuple[tuple[str, bytes | None], ...]


def _plan(*headers: Headers, **more: object) -> object:
    batch = build_batch([NewRecord(b"k", b"v", each, NOW_MS) for each in headers], **more)  # type: ignore[arg-type]
    return split_batch(batch, read_header(batch), 3, NOW_MS)


def test_a_batch_without_delivery_headers_is_left_alone() -> None:
    assert _plan((), (("tidemill-schedule-id", b"x"),), (("other", None),)) is None


def test_waiting_cancelled_and_staying_records() -> None:
    plan = _plan(
        (),
        (("tidemill-delay-ms", b"1500"), ("tidemill-schedule-id", b"named"), ("own", b"1")),
        (("tidemill-cancel", b"other"),),
        (("tidemill-deliver-at", b"77"),),
    )
    assert isinstance(plan, tuple)
    waiting, cancels, taken, *_ = plan
    assert [(one.id, one.due_ms) for one in waiting] == [("named", NOW_MS + 1_500), ("", 77)]
    assert cancels == ["other"]
    assert taken == {1, 2, 3}
    partition, record, _ = read_waiting(waiting[0].body)
    assert (partition, record.key, record.value, dict(record.headers)["own"]) == (3, b"k", b"v", b"1")


def test_cancels_and_schedules_of_one_name_count_in_their_order() -> None:
    def later(due_ms: int) -> Headers:
        return (("tidemill-deliver-at", b"%d" % due_ms), ("tidemill-schedule-id", b"tea"))

    cancel: Headers = (("tidemill-cancel", b"tea"),)
    for headers, due in (
        ((later(1), cancel), []),
        ((cancel, later(2)), [2]),
        ((later(1), cancel, later(2)), [2]),
        ((cancel, later(1), cancel), []),
    ):
        plan = _plan(*headers)
        assert isinstance(plan, BatchSplit)
        assert [one.due_ms for one in plan.waiting] == due
        assert set(plan.cancels) == {"tea"}
        assert plan.taken == set(range(len(headers)))


def test_the_same_batch_of_an_idempotent_producer_is_the_same_message() -> None:
    first, second = (
        _plan((("tidemill-delay-ms", b"1"),), (("tidemill-delay-ms", b"1"),), **_producer(sequence))
        for sequence in (5, 5)
    )
    assert first == second
    assert [one.id for one in first[0]] == ["3-42-1-5", "3-42-1-6"]  # type: ignore[index]


def _producer(sequence: int) -> dict[str, object]:
    return {"producer_id": 42, "producer_epoch": 1, "base_sequence": sequence}


def test_a_transaction_is_refused_with_the_records_at_fault() -> None:
    with pytest.raises(InvalidRecord, match="transaction") as caught:
        _plan((), (("tidemill-delay-ms", b"1"),), transactional=True, **_producer(0))
    assert [index for index, _ in caught.value.record_errors] == [1]


@given(st.binary(max_size=30), st.sampled_from(["tidemill-delay-ms", "tidemill-deliver-at", "tidemill-cancel"]))
def test_any_value_is_a_plan_or_an_invalid_record(value: bytes, name: str) -> None:
    refused: list[int] = []
    plan: object = (None, None, {0})
    try:
        plan = _plan(((name, value),))
    except InvalidRecord as error:
        refused = [index for index, _ in error.record_errors]
    assert refused in ([], [0])
    assert isinstance(plan, tuple)
    assert plan[2] == {0}


def test_the_mark_of_a_delivered_record_is_the_last_one() -> None:
    forged = (("tidemill-message", b"forged"), ("own", b"1"), ("tidemill-message", b"a@7"))
    assert delivered_mark(Record(0, 0, None, None, forged)) == b"a@7"
    assert delivered_mark(Record(0, 0, None, None, ())) is None


def _taken(count: int) -> object:
    return _plan(*[(("tidemill-delay-ms", b"1"),)] * count)


def test_the_records_of_a_batch_that_wait_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_split, "TAKEN_MAX", 2)
    assert isinstance(_taken(2), BatchSplit)
    with pytest.raises(InvalidRecord, match="may contain 2 records with a delivery time"):
        _taken(3)


def test_the_headers_of_a_record_that_waits_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_split, "TAKEN_HEADERS_MAX", 2)
    delay = ("tidemill-delay-ms", b"1")
    assert isinstance(_plan((delay, ("a", b""))), BatchSplit)
    assert _plan((("a", b""), ("b", b""), ("c", b""))) is None
    with pytest.raises(InvalidRecord, match="may contain 2 headers"):
        _plan((delay, ("a", b""), ("b", b"")))


@pytest.mark.parametrize(
    ("headers", "is_valid"),
    [
        ((("tidemill-deliver-at", b"253402300799999"),), True),
        ((("tidemill-deliver-at", b"253402300800000"),), False),
        ((("tidemill-delay-ms", b"%d" % (253_402_300_799_999 - NOW_MS)),), True),
        ((("tidemill-delay-ms", b"%d" % (253_402_300_800_000 - NOW_MS)),), False),
        ((("tidemill-deliver-at", b"0" * 18),), True),
        ((("tidemill-deliver-at", b"0" * 19),), False),
        ((("tidemill-deliver-at", None),), False),
        ((("tidemill-cancel", b"x" * 200),), True),
        ((("tidemill-cancel", b"x" * 201),), False),
        ((("tidemill-cancel", b""),), False),
        ((("tidemill-cancel", None),), False),
        ((("tidemill-cancel", b"a\nb"),), False),
        ((("tidemill-cancel", b"\xff"),), False),
    ],
)
def test_values_of_delivery_headers_are_limited(headers: Headers, is_valid: bool) -> None:
    if is_valid:
        assert isinstance(_plan(headers), BatchSplit)
    else:
        with pytest.raises(InvalidRecord):
            _plan(headers)


def test_a_delay_needs_a_trusted_clock_and_a_time_does_not() -> None:
    def split(name: str) -> BatchSplit | None:
        batch = build_batch([NewRecord(b"k", b"v", ((name, b"5"),), NOW_MS)])
        return split_batch(batch, read_header(batch), 3, None)

    plan = split("tidemill-deliver-at")
    assert plan is not None
    assert plan.waiting[0].due_ms == 5
    with pytest.raises(ClockInDoubt, match="no tidemill-delay-ms can be counted from it"):
        split("tidemill-delay-ms")


def test_the_sequence_of_a_message_starts_again_at_0_after_the_largest() -> None:
    plan = _plan(*[(("tidemill-delay-ms", b"1"),)] * 3, **_producer(2**31 - 2))
    assert isinstance(plan, BatchSplit)
    assert [one.id for one in plan.waiting] == ["3-42-1-2147483646", "3-42-1-2147483647", "3-42-1-0"]


def test_a_record_of_no_idempotent_producer_waits_without_one() -> None:
    plan = _plan((("tidemill-deliver-at", b"77"),))
    assert isinstance(plan, BatchSplit)
    [waiting] = plan.waiting
    header = read_header(waiting.body, batch_split._PARTITION.size)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert read_waiting(waiting.body)[2] is None
