"""What a batch with delivery headers asks for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.errors import InvalidRecord
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import read_header
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.scheduling.core.batch_split import BatchSplit, Origin, delivered_mark, read_waiting, split_batch
from tidemill.scheduling.delivery import by_partition, received, to_send, to_store
from tidemill.timelines.consumer import Granted
from tidemill.timelines.core.lease import LeaseGrant
from tidemill.timelines.core.message import TimedMessage

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
    waiting, cancels, taken = plan
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


def test_what_is_sent_to_the_leader_arrives_with_its_lease_and_is_stored_without() -> None:
    plan: Any = _plan(
        (("tidemill-deliver-at", b"5"), ("tidemill-message", b"forged")),
        producer_id=4,
        producer_epoch=1,
        base_sequence=9,
    )
    body = plan.waiting[0].body
    message = TimedMessage(7, "a", 5, 5, 0, "", None, 0, 1, 2, len(body), None, body)
    [entries] = by_partition(
        [Granted(message, LeaseGrant(7, 3, "h", 900, 2))], lambda one: b"%s@%d" % (one.id.encode(), one.seq)
    ).values()
    sent = received(to_send(entries))
    assert sent is not None
    assert [one._replace(record=one.record) for one in sent] == [
        one._replace(seq=0, token=0, size=0) for one in entries
    ]
    assert sent[0][1:6] == (b"a@7", 5, 2, 900, Origin(3, 4, 1, 9))
    [stored] = read_records(to_store(sent, NOW_MS))
    assert stored.headers == (("tidemill-deliver-at", b"5"), ("tidemill-message", b"a@7"))
    assert stored.timestamp == NOW_MS
    assert received(build_batch([NewRecord(b"k", b"v", (), NOW_MS)])) is None


def test_a_lease_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="has no valid lease"):
        received(build_batch([NewRecord(b"k", b"v", (("tidemill-lease", b"?"),), NOW_MS)]))
