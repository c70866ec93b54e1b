"""Values as bytes, for the journal of replicated timelines and for calls between brokers: JSON, then keys and bodies.

The JSON part has the length of each key and body (-1 for none), so that binary data is copied once and never encoded.
"""

import json
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

from tidemill.timelines.core.errors import StoreCorrupt
from tidemill.timelines.core.lease import (
    Cancel,
    Command,
    Complete,
    CompleteAs,
    Extend,
    Move,
    MoveToTimeline,
    Release,
)
from tidemill.timelines.core.message import NewMessage, TimedMessage
from tidemill.timelines.core.timeline import TimelineInfo, TimelineSettings, TimelineState

_LENGTH = Struct(">I")
_NONE = -1
_KEY = TimedMessage._fields.index("key")
_COMMANDS: dict[str, type[Any]] = {
    "C": Complete,
    "A": CompleteAs,
    "R": Release,
    "E": Extend,
    "X": Cancel,
    "M": Move,
    "T": MoveToTimeline,
}
_LETTERS = {kind: letter for letter, kind in _COMMANDS.items()}


class BlobReader:
    """Cuts keys and bodies from the end of a frame, in their order."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes | None:
        """The next `size` bytes; None for a size of -1."""
        if size == _NONE:
            return None
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise StoreCorrupt("a frame of timelines is cut short")
        piece, self._position = bytes(self._data[self._position : end]), end
        return piece


def pack(values: Any, blobs: Iterable[bytes | None] = ()) -> bytes:
    """A frame of JSON values and binary data."""
    text = json.dumps(values, separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *(blob for blob in blobs if blob)])


def unpack(frame: bytes | memoryview) -> tuple[Any, BlobReader]:
    """The values of a frame, and a reader of its binary data; StoreCorrupt when it is not a frame."""
    view = memoryview(frame)
    if len(view) < _LENGTH.size:
        raise StoreCorrupt("a frame of timelines has no length")
    end = _LENGTH.size + _LENGTH.unpack_from(view)[0]
    if end > len(view):
        raise StoreCorrupt("a frame of timelines is cut short")
    try:
        return json.loads(bytes(view[_LENGTH.size : end])), BlobReader(view[end:])
    except ValueError:
        raise StoreCorrupt("a frame of timelines cannot be read") from None


def new_rows(messages: Sequence[NewMessage]) -> tuple[list[list[Any]], list[bytes | None]]:
    """New messages as rows and binary data."""
    rows = [
        [one.id, one.due_ms, one.bucket, one.group, _size(one.key), len(one.body), *_recurrence(one)]
        for one in messages
    ]
    return rows, [blob for one in messages for blob in (one.key, one.body)]


def new_from(rows: Iterable[Sequence[Any]], blobs: BlobReader) -> list[NewMessage]:
    """The messages of `new_rows`."""
    read = []
    for message_id, due_ms, bucket, group, key_size, body_size, *recurrence in rows:
        key = blobs.take(key_size)
        read.append(NewMessage(message_id, due_ms, blobs.take(body_size) or b"", bucket, key, group, *recurrence))
    return read


def timed_rows(messages: Sequence[TimedMessage]) -> tuple[list[list[Any]], list[bytes | None]]:
    """Messages as rows and binary data; those without a body keep that."""
    rows = [[*one[:_KEY], _size(one.key), _size(one.body), *_recurrence(one)] for one in messages]
    return rows, [blob for one in messages for blob in (one.key, one.body)]


def timed_from(rows: Iterable[Sequence[Any]], blobs: BlobReader) -> list[TimedMessage]:
    """The messages of `timed_rows`."""
    read = []
    for row in rows:
        key_size, body_size, *recurrence = row[_KEY:]
        key = blobs.take(key_size)
        read.append(TimedMessage._make([*row[:_KEY], key, blobs.take(body_size), *(recurrence or [""])]))
    return read


def command_rows(commands: Iterable[Command]) -> list[list[Any]]:
    """Commands as rows."""
    return [[_LETTERS[type(one)], *one] for one in commands]


def commands_from(rows: Iterable[Sequence[Any]]) -> list[Command]:
    """The commands of `command_rows`."""
    return [_COMMANDS[letter](*values) for letter, *values in rows]


def timeline_row(timeline: TimelineInfo) -> list[Any]:
    """A timeline as a row."""
    return [timeline.name, timeline.number, timeline.state.value, timeline.settings.to_json()]


def timeline_from(row: Sequence[Any]) -> TimelineInfo:
    """The timeline of `timeline_row`."""
    name, number, state, settings = row
    return TimelineInfo(name, number, TimelineState(state), TimelineSettings.from_json(settings))


def _recurrence(message: NewMessage | TimedMessage) -> list[str]:
    """Nothing for a message that is due once: brokers of earlier versions know only these."""
    return [message.recurrence] if message.recurrence else []


def _size(data: bytes | None) -> int:
    return _NONE if data is None else len(data)
