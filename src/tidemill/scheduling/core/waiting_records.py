"""The journal entries of waiting records: one record of `__waiting` for each, and a tombstone when it no longer waits.

The key is topic and id, so compaction keeps the records that still wait. The value has the due time, the ticket of the
record and its content on the timeline. A ticket is drawn when a record starts to wait, and no other record has it,
whichever broker delivers the record. So the ticket becomes its mark in the log of its partition. The ticket also has
the id of the topic, because a topic of the same name that was created later is another topic.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - the name of a class
from typing import NamedTuple
from uuid import UUID

from tidemill.model.errors import InvalidRecord

ENTRIES_MAX = 1_000
BYTES_MAX = 512 * 1024
"""The most bytes that are written at a time; a larger entry is written alone."""

_HEAD = Struct(">q32s")
_KIND = Struct(">q")
_RULE = Struct(">qH")
_MOVE = Struct(">qq")
_RECURS = -1
"""In the place of the due time: a rule precedes the entry."""
_MOVES = -2
_DRAWN = 16
_BETWEEN = b"\0"  # neither a topic's name nor an id can contain it


class WaitingEntry(NamedTuple):
    """A waiting record; without a body, one that no longer waits, or moves."""

    topic: str
    id: str
    due_ms: int = 0
    ticket: bytes = b""
    body: bytes | None = None
    rule: str = ""
    """The recurrence of the record, as timelines keep it."""
    moves: bool = False
    """Not an entry of the journal: the owner of the timeline is asked to move the record to `due_ms`."""

    @property
    def size(self) -> int:
        """Its approximate size in the journal."""
        return len(self.topic) + len(self.id) + len(self.body or b"") + len(self.rule) + _HEAD.size


def new_ticket(drawn: UUID, topic_id: UUID) -> bytes:
    """A ticket for a record of this topic."""
    return drawn.bytes + topic_id.bytes


def mark_of(ticket: bytes) -> bytes:
    """The mark of the record in the log of its partition."""
    return ticket[:_DRAWN].hex().encode()


def occurrence_mark(mark: bytes, scheduled_ms: int) -> bytes:
    """The mark of one occurrence of a recurring record."""
    return b"%s~%d" % (mark, scheduled_ms)


def topic_id_of(ticket: bytes) -> UUID:
    """The topic that the record was sent to."""
    return UUID(bytes=ticket[_DRAWN:])


def encode(entry: WaitingEntry) -> tuple[bytes, bytes | None]:
    """Encode the entry as key and value."""
    key = entry.topic.encode() + _BETWEEN + entry.id.encode()
    if entry.moves:
        return key, _MOVE.pack(_MOVES, entry.due_ms)
    if entry.body is None:
        return key, None
    value = _HEAD.pack(entry.due_ms, entry.ticket) + entry.body
    if not entry.rule:
        return key, value
    rule = entry.rule.encode()
    return key, _RULE.pack(_RECURS, len(rule)) + rule + value


def decode(key: bytes | None, value: bytes | None) -> WaitingEntry:
    """Decode the entry of a record; InvalidRecord when it is not an entry."""
    topic, between, message_id = (key or b"").partition(_BETWEEN)
    if not between or (value is not None and len(value) < _KIND.size):
        raise InvalidRecord("the record is not an entry of the journal of waiting records")
    try:
        named = WaitingEntry(topic.decode(), message_id.decode())
    except UnicodeDecodeError:
        raise InvalidRecord("an entry of the journal of waiting records has an unreadable name") from None
    if value is None:
        return named
    try:
        return _decode_value(named, value)
    except (StructError, UnicodeDecodeError):
        raise InvalidRecord("an entry of the journal of waiting records is cut short") from None


def _decode_value(named: WaitingEntry, value: bytes) -> WaitingEntry:
    (kind,) = _KIND.unpack_from(value)
    if kind == _MOVES:
        return named._replace(due_ms=_MOVE.unpack_from(value)[1], moves=True)
    if kind == _RECURS:
        start = _RULE.size + _RULE.unpack_from(value)[1]
        rule, value = value[_RULE.size : start].decode(), value[start:]
        named = named._replace(rule=rule)
    due_ms, ticket = _HEAD.unpack_from(value)
    return named._replace(due_ms=due_ms, ticket=ticket, body=value[_HEAD.size :])


def in_chunks(entries: Iterable[WaitingEntry]) -> Iterator[Sequence[WaitingEntry]]:
    """The entries in groups that are written together."""
    piece: list[WaitingEntry] = []
    size = 0
    for entry in entries:
        if piece and (len(piece) == ENTRIES_MAX or size + entry.size > BYTES_MAX):
            yield piece
            piece, size = [], 0
        piece.append(entry)
        size += entry.size
    if piece:
        yield piece
