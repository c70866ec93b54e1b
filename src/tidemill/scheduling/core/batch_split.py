"""Splits a produced batch: which records wait, which scheduled ones are cancelled or moved, and which are stored now.

A record waits when its headers have a delivery time, a delay or a recurrence (`delivery_headers.py`). The header
`tidemill-schedule-id` gives it an id. A record with `tidemill-cancel` cancels the record with that id, and one with
`tidemill-move-to` moves the record with the id in `tidemill-schedule-id`; both are not stored themselves. Everything
else in the batch is stored as usual.

On the timeline a waiting record is stored as the number of its partition followed by a record batch of one record. The
header of that batch has the origin of the record: producer, epoch and sequence, which no other record has.
"""

from collections.abc import Collection
from struct import Struct
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage, InvalidRecord
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import BatchHeader, Buffer, read_header
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.records.validate import invalid_record
from tidemill.scheduling.core.delivery_headers import (
    CANCEL,
    DUE_MS_MAX,
    MOVE_TO,
    SCHEDULE_ID,
    Headers,
    WrongHeader,
    delivery_time,
    is_special,
    number_of,
    own_headers,
)

MESSAGE = "tidemill-message"
"""Added when the record is delivered: its id on the timeline and its number there, which no other message has."""

ID_CHARS_MAX = 200
TAKEN_MAX = 10_000
"""The most records of one batch that wait or cancel; each becomes a separate message."""
TAKEN_HEADERS_MAX = 1_000
"""The most headers of a waiting record, because it is decoded on the event loop when it is due."""
RECURRING_MAX = 100
"""The most records of one batch that recur: computing the first time of an odd cron expression takes milliseconds."""
SEQUENCE_MAX = 2**31 - 1
_PARTITION = Struct(">i")


class Origin(NamedTuple):
    """The origin of an idempotent producer's record; a record that is sent again has the same."""

    partition: int
    producer_id: int
    producer_epoch: int
    sequence: int


class WaitingRecord(NamedTuple):
    """A waiting record; `id` is empty if the producer gave none and none follows from its sequence."""

    id: str
    due_ms: int
    body: bytes
    origin: Origin | None
    rule: str = ""
    """Its recurrence, as timelines keep it."""


class MovedRecord(NamedTuple):
    """A scheduled record that gets another time."""

    id: str
    due_ms: int


class BatchSplit(NamedTuple):
    """The cancelled ids, the moves and the waiting records of a batch; `taken` are the positions of all in it.

    The order in the batch counts: a record that is cancelled later in the same batch does not wait.
    """

    waiting: list[WaitingRecord]
    cancels: list[str]
    taken: set[int]
    early_moves: list[MovedRecord]
    """Moves of records that were scheduled before this batch."""
    late_moves: list[MovedRecord]
    """Moves of records that this batch schedules."""


class _BatchSource(NamedTuple):
    """Where the records of a batch come from, and how their headers are read."""

    header: BatchHeader
    partition: int
    now_ms: int | None
    aliases: Collection[str]
    topic: str


def split_batch(
    batch: Buffer,
    header: BatchHeader,
    partition: int,
    now_ms: int | None,
    aliases: Collection[str] = (),
    topic: str = "",
) -> BatchSplit | None:
    """Split a batch that was checked; None when all of it is stored as usual.

    `now_ms` is None while the clock is in doubt and no delay can be counted from it. `aliases` are the headers of other
    systems that `topic` accepts.
    """
    plan = BatchSplit([], [], set(), [], [])
    source = _BatchSource(header, partition, now_ms, aliases, topic)
    try:
        for at, record in enumerate(read_records(batch)):
            if is_special((name for name, _ in record.headers), aliases):
                _take_out(plan, at, record, source)
    except CorruptMessage as error:
        raise invalid_record(error) from None
    return plan if plan.taken else None


def _take_out(plan: BatchSplit, at: int, record: Record, source: _BatchSource) -> None:
    if source.header.transactional:
        raise _wrong(at, "a transaction cannot contain records with a delivery time: they would outlive it")
    if len(plan.taken) == TAKEN_MAX:
        raise _wrong(at, f"a batch may contain {TAKEN_MAX} records with a delivery time; send smaller batches")
    if len(record.headers) > TAKEN_HEADERS_MAX:
        raise _wrong(at, f"a record with a delivery time may contain {TAKEN_HEADERS_MAX} headers; send fewer")
    plan.taken.add(at)
    try:
        _add(plan, at, record, source)
    except WrongHeader as error:
        raise _wrong(at, str(error)) from None


def read_waiting(body: bytes) -> tuple[int, Record, Origin | None]:
    """The partition and the record of a message on a timeline, and its origin."""
    (partition,) = _PARTITION.unpack_from(body)
    header = read_header(body, _PARTITION.size)
    record = next(read_records(memoryview(body)[_PARTITION.size :]))
    return partition, record, _origin(partition, header, 0)


def _origin(partition: int, header: BatchHeader, at: int) -> Origin | None:
    if not header.has_producer:
        return None
    return Origin(partition, header.producer_id, header.producer_epoch, (header.base_sequence + at) & SEQUENCE_MAX)


def delivered_mark(record: Record) -> bytes | None:
    """The mark of a record that was delivered from a timeline; None for every other record."""
    return next((value for name, value in reversed(record.headers) if name == MESSAGE), None)


def _add(plan: BatchSplit, at: int, record: Record, source: _BatchSource) -> None:
    headers = own_headers(record.headers, source.aliases, source.topic)
    if CANCEL in headers:
        _cancel(plan, _id(headers, CANCEL))
        return
    if MOVE_TO in headers:
        _move(plan, headers)
        return
    origin = _origin(source.partition, source.header, at)
    if SCHEDULE_ID in headers:
        message_id = _id(headers, SCHEDULE_ID)
    elif origin is not None:
        message_id = "-".join(map(str, origin))  # the same batch sent again is the same message
    else:
        message_id = ""
    time = delivery_time(headers, source.now_ms)
    if time.rule and sum(bool(one.rule) for one in plan.waiting) == RECURRING_MAX:
        raise WrongHeader(f"a batch may contain {RECURRING_MAX} records that recur; send smaller batches")
    alone = build_batch(
        [NewRecord(record.key, record.value, record.headers, record.timestamp)],
        producer_id=origin.producer_id if origin else -1,
        producer_epoch=origin.producer_epoch if origin else -1,
        base_sequence=origin.sequence if origin else -1,
    )
    body = _PARTITION.pack(source.partition) + alone
    plan.waiting.append(WaitingRecord(message_id, time.due_ms, body, origin, time.rule))


def _cancel(plan: BatchSplit, cancelled: str) -> None:
    plan.cancels.append(cancelled)
    plan.waiting[:] = [one for one in plan.waiting if one.id != cancelled]
    plan.late_moves[:] = [one for one in plan.late_moves if one.id != cancelled]


def _move(plan: BatchSplit, headers: Headers) -> None:
    if SCHEDULE_ID not in headers:
        raise WrongHeader(f"a record with {MOVE_TO} names the scheduled record in {SCHEDULE_ID}")
    moved = MovedRecord(_id(headers, SCHEDULE_ID), number_of(headers, MOVE_TO))
    if moved.due_ms > DUE_MS_MAX:
        raise WrongHeader("the delivery time is beyond the year 9999")
    if any(one.id == moved.id for one in plan.waiting):
        plan.late_moves.append(moved)
    elif moved.id not in plan.cancels:
        plan.early_moves.append(moved)


def _id(headers: Headers, name: str) -> str:
    value = headers[name]
    text = "" if value is None else value.decode("utf-8", "replace")
    if not 0 < len(text) <= ID_CHARS_MAX or not text.isprintable() or "\ufffd" in text:
        raise WrongHeader(f"the header {name} must have 1 to {ID_CHARS_MAX} printable characters")
    return text


def _wrong(at: int, reason: str) -> InvalidRecord:
    error = InvalidRecord(reason)
    error.record_errors = ((at, reason),)
    return error
