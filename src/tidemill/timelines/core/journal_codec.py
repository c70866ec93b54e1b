"""Journal entries as the values of records, and back."""

from collections.abc import Callable
from typing import Any

from tidemill.timelines.core.errors import StoreCorrupt
from tidemill.timelines.core.frames import (
    BlobReader,
    command_rows,
    commands_from,
    new_from,
    new_rows,
    pack,
    timed_from,
    timed_rows,
    timeline_from,
    timeline_row,
    unpack,
)
from tidemill.timelines.core.journal_entries import (
    AdoptedMessages,
    DoneCommands,
    GrantedClaims,
    JournalEntry,
    KeptTimeline,
    PurgedMessages,
    RestatedCatalogue,
    RestatedMessages,
    ScheduledMessages,
)
from tidemill.timelines.core.lease import Claim


def encode_entry(entry: JournalEntry) -> bytes:
    """The value of the record."""
    match entry:
        case ScheduledMessages(timeline, first, new):
            rows, blobs = new_rows(new)
            return pack(["schedule", timeline, first, rows], blobs)
        case GrantedClaims(timeline, claims, now_ms, early_ms):
            return pack(["lease", timeline, claims, now_ms, early_ms])
        case DoneCommands(timeline, commands, now_ms):
            return pack(["settle", timeline, command_rows(commands), now_ms])
        case KeptTimeline(timeline=kept):
            return pack(["keep", timeline_row(kept)])
        case PurgedMessages(timeline, limit, is_last):
            return pack(["purge", timeline, limit, is_last])
        case RestatedCatalogue(timelines, last_seq, last_number):
            return pack(["catalogue", [timeline_row(one) for one in timelines], last_seq, last_number])
        case RestatedMessages(timeline, restated):
            rows, blobs = timed_rows(restated)
            return pack(["restate", timeline, rows], blobs)
        case AdoptedMessages(source, until, timeline, adopted):
            rows, blobs = timed_rows(adopted)
            return pack(["adopt", source, until, timeline, rows], blobs)


def decode_entry(value: bytes | memoryview) -> JournalEntry:
    """The entry in the value of a record; StoreCorrupt when there is none."""
    values, blobs = unpack(value)
    try:
        kind, *fields = values
        return _READERS[kind](fields, blobs)
    except (KeyError, TypeError, ValueError, IndexError):
        raise StoreCorrupt("an entry of the journal of timelines cannot be read; run the newest version") from None


def _schedule(fields: list[Any], blobs: BlobReader) -> JournalEntry:
    timeline, first, rows = fields
    return ScheduledMessages(timeline, first, new_from(rows, blobs))


def _lease(fields: list[Any], _: BlobReader) -> JournalEntry:
    timeline, claims, now_ms, early_ms = fields
    return GrantedClaims(timeline, [Claim(*one) for one in claims], now_ms, early_ms)


def _settle(fields: list[Any], _: BlobReader) -> JournalEntry:
    timeline, commands, now_ms = fields
    return DoneCommands(timeline, commands_from(commands), now_ms)


def _keep(fields: list[Any], _: BlobReader) -> JournalEntry:
    (row,) = fields
    return KeptTimeline(timeline_from(row))


def _purge(fields: list[Any], _: BlobReader) -> JournalEntry:
    return PurgedMessages(*fields)


def _catalogue(fields: list[Any], _: BlobReader) -> JournalEntry:
    timelines, last_seq, last_number = fields
    return RestatedCatalogue([timeline_from(one) for one in timelines], last_seq, last_number)


def _restate(fields: list[Any], blobs: BlobReader) -> JournalEntry:
    timeline, rows = fields
    return RestatedMessages(timeline, timed_from(rows, blobs))


def _adopt(fields: list[Any], blobs: BlobReader) -> JournalEntry:
    source, until, timeline, rows = fields
    return AdoptedMessages(source, until, timeline, timed_from(rows, blobs))


_READERS: dict[str, Callable[[list[Any], BlobReader], JournalEntry]] = {
    "schedule": _schedule,
    "lease": _lease,
    "settle": _settle,
    "keep": _keep,
    "purge": _purge,
    "catalogue": _catalogue,
    "restate": _restate,
    "adopt": _adopt,
}
