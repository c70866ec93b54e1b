"""The documents of the log: recent warnings and errors of the brokers."""

from typing import Annotated, Literal

import msgspec

from tidemill.wire.http.document import PAGE_ROWS, PAGE_ROWS_MAX, SEARCH_CHARS_MAX, Document, Input

PAGE_MAX = 1_000
TIME_MS_MAX = 2**53

LogLevel = Literal["warning", "error"]
NodeId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
TimeMs = Annotated[int, msgspec.Meta(ge=0, le=TIME_MS_MAX)]


class LogQuery(Input, frozen=True, kw_only=True):
    """Which events are listed, the newest first. Without a broker, those of all brokers."""

    level: Annotated[LogLevel, msgspec.Meta(description="`warning` lists errors, too.")] = "warning"
    search: Annotated[
        str, msgspec.Meta(max_length=SEARCH_CHARS_MAX, description="Part of the event, a field or the traceback.")
    ] = ""
    broker: NodeId | None = None
    since_ms: Annotated[TimeMs, msgspec.Meta(description="Events that occurred at this time or later.")] = 0
    page: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX, description="The page, from 1 on.")] = 1
    rows: Annotated[int, msgspec.Meta(ge=1, le=PAGE_ROWS_MAX, description="Rows of a page.")] = PAGE_ROWS


class LogQuestion(Document, frozen=True, kw_only=True):
    """What one broker asks another for: its newest events that match."""

    level: LogLevel
    search: str
    since_ms: int
    limit: int


class LogField(Document, frozen=True, kw_only=True):
    """A value of an event."""

    name: str
    value: str


class LogEvent(Document, frozen=True, kw_only=True):
    """A warning or an error. Texts are cut. Events that differ only in their time are one, with their number."""

    broker: int
    number: int
    """Its place among the events of the broker since the broker started."""
    level: LogLevel
    logger: str
    event: str
    fields: list[LogField]
    traceback: str
    count: int
    first_ms: int
    last_ms: int


class LogPart(Document, frozen=True, kw_only=True):
    """The events of one broker."""

    events: list[LogEvent]
    warnings: int
    errors: int
    dropped: int


class LogPage(Document, frozen=True, kw_only=True):
    """A page of events. `warnings` and `errors` count the events of the search, `dropped` those no longer kept."""

    events: list[LogEvent]
    total: int
    warnings: int
    errors: int
    dropped: int
    unreachable_brokers: list[int]
