"""The newest warnings and errors of this process, in memory, for the console.

Text in the log comes from clients, too: names, ids, addresses. So every entry is cut, the same event is kept once with
the number of its repeats, and no kind of event takes the place of the others. Any thread may log.
"""

from collections.abc import Mapping
from itertools import count
from threading import Lock
from typing import NamedTuple

ENTRIES_MAX = 1_000
BYTES_MAX = 1 << 20
"""Characters of all entries, counted as one byte each."""
OF_SOURCE_MAX = 100
"""The most entries of one event, or of one library, so that a flood of one kind leaves the others."""
EVENT_CHARS_MAX = 300
FIELDS_MAX = 20
NAME_CHARS_MAX = 60
VALUE_CHARS_MAX = 1_000
TRACEBACK_CHARS_MAX = 8_000
ENTRY_BYTES = 200
"""What an entry takes without its text."""
OWN = "tidemill"
WARNING, ERROR = "warning", "error"


class LogText(NamedTuple):
    """What an event says. Two events with the same text are repeats of one."""

    level: str
    logger: str
    event: str
    fields: tuple[tuple[str, str], ...]
    traceback: str

    @property
    def source(self) -> tuple[str, str]:
        """The kind of the event. Libraries write sentences instead of fixed events, so they count as one kind each."""
        return self.logger, self.event if self.logger.partition(".")[0] == OWN else ""

    @property
    def size_bytes(self) -> int:
        """The memory of the entry, about."""
        fields = sum(len(name) + len(value) for name, value in self.fields)
        return ENTRY_BYTES + len(self.logger) + len(self.event) + fields + len(self.traceback)


class RecentEvent(NamedTuple):
    """One event, with the times of its first and of its newest occurrence."""

    number: int
    text: LogText
    first_ms: int
    last_ms: int
    occurrences: int


class RecentLog:
    """A bounded list of events. When it is full, the event that was not repeated for the longest time goes."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers = count(1)
        self._events: dict[LogText, RecentEvent] = {}
        self._of_source: dict[tuple[str, str], dict[LogText, None]] = {}
        self._bytes = 0
        self._dropped = 0

    def add(
        self, now_ms: int, level: str, logger: str, event: str, fields: Mapping[str, object], traceback: str = ""
    ) -> None:
        """Keep an event."""
        text = LogText(
            ERROR if level != WARNING else WARNING,
            logger[:NAME_CHARS_MAX],
            _cut(event, EVENT_CHARS_MAX),
            tuple((name[:NAME_CHARS_MAX], _cut(fields[name], VALUE_CHARS_MAX)) for name in list(fields)[:FIELDS_MAX]),
            traceback if len(traceback) <= TRACEBACK_CHARS_MAX else f"…{traceback[-TRACEBACK_CHARS_MAX:]}",
        )
        with self._lock:
            known = self._remove(text)
            kept = RecentEvent(next(self._numbers), text, now_ms, now_ms, 1)
            if known is not None:
                kept = known._replace(last_ms=now_ms, occurrences=known.occurrences + 1)
            self._events[text] = kept
            self._of_source.setdefault(text.source, {})[text] = None
            self._bytes += text.size_bytes
            if len(self._of_source[text.source]) > OF_SOURCE_MAX:
                self._drop(next(iter(self._of_source[text.source])))
            while len(self._events) > ENTRIES_MAX or self._bytes > BYTES_MAX:
                self._drop(next(iter(self._events)))

    def newest(self) -> list[RecentEvent]:
        """All events that are kept, the newest first."""
        with self._lock:
            return list(reversed(self._events.values()))

    def errors_since(self, time_ms: int) -> int:
        """How many different errors have occurred at this time or later."""
        return sum(each.text.level == ERROR and each.last_ms >= time_ms for each in self.newest())

    @property
    def dropped(self) -> int:
        """How many events are no longer kept."""
        return self._dropped

    def _drop(self, text: LogText) -> None:
        self._remove(text)
        self._dropped += 1

    def _remove(self, text: LogText) -> RecentEvent | None:
        known = self._events.pop(text, None)
        if known is None:
            return None
        self._bytes -= text.size_bytes
        others = self._of_source[text.source]
        del others[text]
        if not others:
            del self._of_source[text.source]
        return known


def _cut(value: object, chars_max: int) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= chars_max else f"{text[:chars_max]}…"
