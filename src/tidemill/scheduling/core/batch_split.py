"""Splits a produced batch: which records wait, which scheduled records are cancelled, and which are stored now.

A record waits when it has the header `tidemill-deliver-at` (milliseconds since 1970) or `tidemill-delay-ms`. The header
`tidemill-schedule-id` gives it an id. A record with `tidemill-cancel` cancels the record with that id and is not stored
itself. Header values are decimal text. Everything else in the batch is stored as usual.

On the timeline a waiting record is stored as the number of its partition followed by a record batch of one record. The
header of that batch has the origin of the record: producer, epoch and sequence, which no other record has.
"""

from struct import Struct
from typing import NamedTuple

from tidemill.model.errors import CorruptMessage, InvalidRecord
from tidemill.model.timeline_errors import ClockInDoubt
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import BatchHeader, Buffer, read_header
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.records.validate import invalid_record

DELIVER_AT = "tidemill-deliver-at"
DELAY_MS = "tidemill-delay-ms"
SCHEDULE_ID = "tidemill-schedule-id"
CANCEL = "tidemill-cancel"
MESSAGE = "tidemill-message"
"""Added when the record is delivered: its id on the timeline and its number there, which no other message has."""

DUE_MS_MAX = 253_402_300_799_999
ID_CHARS_MAX = 200
DIGITS_MAX = 18
TAKEN_MAX = 10_000
"""The most records of one batch that wait or cancel; each becomes a separate message."""
TAKEN_HEADERS_MAX = 1_000
"""The most headers of a waiting record, because it is decoded on the event loop when it is due."""
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


class BatchSplit(NamedTuple):
    """The cancelled ids and the waiting records of a batch; `taken` are the positions of both in it.

    The order in the batch counts: a record that is cancelled later in the same batch does not wait.
    """

    waiting: list[WaitingRecord]
    cancels: list[str]
    taken: set[int]


def split_batch(batch: Buffer, header: BatchHeader, partition: int, now_ms: int | None) -> BatchSplit | None:
    """Split a batch that was checked; None when all of it is stored as usual.

    `now_ms` is None while the clock is in doubt and no delay can be counted from it.
    """
    plan = BatchSplit([], [], set())
    try:
        for at, record in enumerate(read_records(batch)):
            if _special(record):
                _take_out(plan, at, record, header, partition, now_ms)
    except CorruptMessage as error:
        raise invalid_record(error) from None
    return plan if plan.taken else None


def _take_out(
    plan: BatchSplit, at: int, record: Record, header: BatchHeader, partition: int, now_ms: int | None
) -> None:
    if header.transactional:
        raise _wrong(at, "a transaction cannot contain records with a delivery time: they would outlive it")
    if len(plan.taken) == TAKEN_MAX:
        raise _wrong(at, f"a batch may contain {TAKEN_MAX} records with a delivery time; send smaller batches")
    if len(record.headers) > TAKEN_HEADERS_MAX:
        raise _wrong(at, f"a record with a delivery time may contain {TAKEN_HEADERS_MAX} headers; send fewer")
    plan.taken.add(at)
    _add(plan, at, record, header, partition, now_ms)


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


def _special(record: Record) -> bool:
    return any(name in {DELIVER_AT, DELAY_MS, CANCEL} for name, _ in record.headers)


def _add(plan: BatchSplit, at: int, record: Record, header: BatchHeader, partition: int, now_ms: int | None) -> None:
    headers = dict(record.headers)
    if CANCEL in headers:
        cancelled = _id(at, headers[CANCEL], CANCEL)
        plan.cancels.append(cancelled)
        plan.waiting[:] = [one for one in plan.waiting if one.id != cancelled]
        return
    origin = _origin(partition, header, at)
    if SCHEDULE_ID in headers:
        message_id = _id(at, headers[SCHEDULE_ID], SCHEDULE_ID)
    elif origin is not None:
        message_id = "-".join(map(str, origin))  # the same batch sent again is the same message
    else:
        message_id = ""
    if DELIVER_AT in headers:
        due_ms = _number(at, headers[DELIVER_AT], DELIVER_AT)
    elif now_ms is None:
        raise ClockInDoubt(f"the broker's clock is in doubt: no {DELAY_MS} can be counted from it; try again")
    else:
        due_ms = now_ms + _number(at, headers[DELAY_MS], DELAY_MS)
    if due_ms > DUE_MS_MAX:
        raise _wrong(at, "the delivery time is beyond the year 9999")
    alone = build_batch(
        [NewRecord(record.key, record.value, record.headers, record.timestamp)],
        producer_id=origin.producer_id if origin else -1,
        producer_epoch=origin.producer_epoch if origin else -1,
        base_sequence=origin.sequence if origin else -1,
    )
    plan.waiting.append(WaitingRecord(message_id, due_ms, _PARTITION.pack(partition) + alone, origin))


def _number(at: int, value: bytes | None, name: str) -> int:
    if value is None or not value.isdigit() or len(value) > DIGITS_MAX:
        raise _wrong(at, f"the header {name} is not a number of milliseconds")
    return int(value)


def _id(at: int, value: bytes | None, name: str) -> str:
    text = "" if value is None else value.decode("utf-8", "replace")
    if not 0 < len(text) <= ID_CHARS_MAX or not text.isprintable() or "\ufffd" in text:
        raise _wrong(at, f"the header {name} must have 1 to {ID_CHARS_MAX} printable characters")
    return text


def _wrong(at: int, reason: str) -> InvalidRecord:
    error = InvalidRecord(reason)
    error.record_errors = ((at, reason),)
    return error
