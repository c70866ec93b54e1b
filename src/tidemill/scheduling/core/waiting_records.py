"""The journal entries of waiting records: one record of `__waiting` for each, and a tombstone when it no longer waits.

The key is topic and id, so compaction keeps the records that still wait. The value has the due time, the ticket of the
record and its content on the timeline. A ticket is drawn when a record starts to wait, and no other record has it,
whichever broker delivers the record. So the ticket becomes its mark in the log of its partition. The ticket also has
the id of the topic, because a topic of the same name that was created later is another topic.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from tidemill.model.errors import InvalidRecord

ENTRIES_MAX = 1_000
BYTES_MAX = 512 * 1024
"""The most bytes that are written at a time; a larger entry is written alone."""

_HEAD = Struct(">q32s")
_DRAWN = 16
_BETWEEN = b"\0"  # neither a topic's name nor an id can contain it


class WaitingEntry(NamedTuple):
    """A waiting record; without a body, one that no longer waits."""

    topic: str
    id: str
    due_ms: int = 0
    ticket: bytes = b""
    body: bytes | None = None

    @property
    def size(self) -> int:
        """Its approximate size in the journal."""
        return len(self.topic) + len(self.id) + len(self.body or b"") + _HEAD.size


def new_ticket(drawn: UUID, topic_id: UUID) -> bytes:
    """A ticket for a record of this topic."""
    return drawn.bytes + topic_id.bytes


def mark_of(ticket: bytes) -> bytes:
    """The mark of the record in the log of its partition."""
    return ticket[:_DRAWN].hex().encode()


def topic_id_of(ticket: bytes) -> UUID:
    """The topic that the record was sent to."""
    return UUID(bytes=ticket[_DRAWN:])


def encode(entry: WaitingEntry) -> tuple[bytes, bytes | None]:
    """Encode the entry as key and value."""
    key = entry.topic.encode() + _BETWEEN + entry.id.encode()
    if entry.body is None:
        return key, None
    return key, _HEAD.pack(entry.due_ms, entry.ticket) + entry.body


def decode(key: bytes | None, value: bytes | None) -> WaitingEntry:
    """Decode the entry of a record; InvalidRecord when it is not an entry."""
    topic, between, message_id = (key or b"").partition(_BETWEEN)
    if not between or (value is not None and len(value) < _HEAD.size):
        raise InvalidRecord("the record is not an entry of the journal of waiting records")
    try:
        named = WaitingEntry(topic.decode(), message_id.decode())
    except UnicodeDecodeError:
        raise InvalidRecord("an entry of the journal of waiting records has an unreadable name") from None
    if value is None:
        return named
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
