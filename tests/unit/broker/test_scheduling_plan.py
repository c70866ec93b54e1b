"""What a batch with delivery headers asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.broker.scheduling.plan import delivered_seq, plan_batch, read_waiting
from tidemill.model.errors import InvalidRecord
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import read_header
from tidemill.records.record import Record

NOW_MS = 1_800_000_000_000
Headers = tuple[tuple[str, bytes | None], ...]


def _plan(*headers: Headers, **more: object) -> object:
    batch = build_batch([NewRecord(b"k", b"v", each, NOW_MS) for each in headers], **more)  # type: ignore[arg-type]
    return plan_batch(batch, read_header(batch), 3, NOW_MS)


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
    waiting, cancels, stays = plan
    assert [(one.id, one.due_ms) for one in waiting] == [("named", NOW_MS + 1_500), ("", 77)]
    assert cancels == ["other"]
    assert stays == {0}
    partition, record, _ = read_waiting(waiting[0].body)
    assert (partition, record.key, record.value, dict(record.headers)["own"]) == (3, b"k", b"v", b"1")


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
    plan: object = (None, None, frozenset())
    try:
        plan = _plan(((name, value),))
    except InvalidRecord as error:
        refused = [index for index, _ in error.record_errors]
    assert refused in ([], [0])
    assert isinstance(plan, tuple)
    assert not plan[2]


@pytest.mark.parametrize(
    ("value", "seq"),
    [(b"a@7", 7), (b"a@b@12", 12), (b"7", 7), (b"a@", None), (b"a@x", None), (None, None), (b"a@" + b"9" * 30, None)],
)
def test_the_number_of_a_delivered_record(value: bytes | None, seq: int | None) -> None:
    assert delivered_seq(Record(0, 0, None, None, (("tidemill-message", value),))) == seq
    assert delivered_seq(Record(0, 0, None, None, ())) is None
