"""The documents of timelines. Times are milliseconds since 1970."""

from typing import Annotated, Literal

import msgspec

from tidemill.wire.http.document import SEARCH_CHARS_MAX, Document, Input, PageQuery

DUE_MS_MAX = 253_402_300_799_999
BARS = 60
BARS_MAX = 200
MESSAGES = 50
MESSAGES_MAX = 500
IDS_MAX = 1_000
ID_CHARS_MAX = 200
NAME_CHARS_MAX = 249
SETTING_CHARS_MAX = 300
SETTINGS_MAX = 20
RETRIES_MAX = 500
"""Dead letters that one request retries. A script repeats the request, and shows its progress."""

TimelineStatus = Literal["waiting", "available", "leased"]
DueMs = Annotated[int, msgspec.Meta(ge=0, le=DUE_MS_MAX)]
MessageIdText = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_CHARS_MAX)]
TimelineName = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
SettingText = Annotated[str, msgspec.Meta(max_length=SETTING_CHARS_MAX)]
BrokerNumber = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Cursor = Annotated[str, msgspec.Meta(max_length=60, pattern=r"^\d{1,15}\.\d{1,19}$")]


class TimelineQuery(PageQuery, frozen=True, kw_only=True):
    """Which timelines are listed."""

    sort: Literal["name", "consumers"] = "name"
    kind: Literal["all", "timelines", "scheduled"] = "all"
    """Scheduled: the scheduled records of topics."""


class TimelineRow(Document, frozen=True, kw_only=True):
    """One timeline of a list. Numbers of messages are null when they were not counted: look at the timeline itself."""

    timeline: str
    state: str
    broker: int | None = None
    """The only broker that has it; null when brokers share it."""
    topic: str | None = None
    """The topic whose scheduled records it has."""
    consumers: int
    lease_ms: int
    waiting: int | None = None
    available: int | None = None
    leased: int | None = None


class TimelinePage(Document, frozen=True, kw_only=True):
    """A page of timelines."""

    timelines: list[TimelineRow]
    total: int
    unreachable_brokers: list[int]
    is_available: bool
    """Whether any broker that answered has timelines switched on."""


class TimelinePlace(Input, frozen=True, kw_only=True):
    """Which of several timelines with one name. Without it: the one on the broker with the lowest number."""

    broker: BrokerNumber | None = None


class TimelineMember(Document, frozen=True, kw_only=True):
    """A connected consumer of a timeline."""

    consumer: str
    broker: int
    rack: str
    share: float
    """Its part of the messages in this window, from 0 to 1."""
    leased: int
    max_in_flight: int
    lease_ms: int
    latency_ms: float
    state: Literal["ready", "paused", "full", "silent", "stalled"]


class DeadLetterTarget(Document, frozen=True, kw_only=True):
    """Where messages go whose attempts are used up."""

    timeline: str | None = None
    topic: str | None = None
    messages: int | None = None
    """The messages on that timeline; null for a topic, or a timeline that the client may not describe."""


class TimelineView(TimelineRow, frozen=True, kw_only=True):
    """One timeline: its settings, its messages by state, and its consumers."""

    settings: dict[str, str]
    late: int | None = None
    """Messages that no consumer has taken, and that were due a second ago or more."""
    first_due_ms: int | None = None
    last_due_ms: int | None = None
    now_ms: int | None = None
    """The clock of the timeline."""
    members: list[TimelineMember] | None = None
    dead_letters: DeadLetterTarget | None = None
    dead_letters_of: tuple[str, ...] = ()
    """Timelines whose dead letters come here."""
    totals: dict[str, int] = msgspec.field(default_factory=dict)
    """Messages by operation since the brokers started."""
    health: str | None = None
    health_reasons: tuple[str, ...] = ()
    delivery: str = "running"
    """`running`; or `stopped` or `probing` at a broker where most consumers fail."""
    delivery_reasons: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    """All brokers with a timeline of this name. They share it, or have one each."""
    unreachable_brokers: tuple[int, ...] = ()


class TimelineInput(Input, frozen=True, kw_only=True):
    """A new timeline."""

    timeline: TimelineName
    settings: Annotated[dict[str, SettingText], msgspec.Meta(max_length=SETTINGS_MAX)] = msgspec.field(
        default_factory=dict
    )
    broker: BrokerNumber | None = None
    """The broker that gets it, where brokers have timelines of their own. Without it: the broker that is asked."""


class TimelineCreated(Document, frozen=True, kw_only=True):
    """The result of creating a timeline."""

    timeline: str
    broker: int | None
    created: bool
    """False: it existed with the same settings."""


class TimelineSettingsInput(Input, frozen=True, kw_only=True):
    """Settings to change; the others stay."""

    settings: Annotated[dict[str, SettingText], msgspec.Meta(min_length=1, max_length=SETTINGS_MAX)]
    broker: BrokerNumber | None = None


class FutureQuery(TimelinePlace, frozen=True, kw_only=True):
    """A part of a timeline. Without times: from its first message, or now, to its last."""

    from_ms: DueMs | None = None
    to_ms: DueMs | None = None
    bars: Annotated[int, msgspec.Meta(ge=1, le=BARS_MAX)] = BARS
    status: TimelineStatus | None = None


class FuturePageQuery(TimelinePlace, frozen=True, kw_only=True):
    """The part of a timeline that its page shows, and the state of the messages that are counted."""

    from_ms: DueMs | None = None
    to_ms: DueMs | None = None
    status: TimelineStatus | None = None


class FutureView(Document, frozen=True, kw_only=True):
    """Messages by due time. Bar N covers `width_ms` from `from_ms + N * width_ms` on."""

    from_ms: int
    to_ms: int
    width_ms: int
    counts: list[int]
    bar_max: int
    """A bar with this count has so many messages or more."""
    total: int
    now_ms: int


class MessagesQuery(TimelinePlace, frozen=True, kw_only=True):
    """Which messages are listed. `search` is part of an id or of a key; all of an id finds it at once."""

    search: Annotated[str, msgspec.Meta(max_length=SEARCH_CHARS_MAX)] = ""
    status: TimelineStatus | None = None
    from_ms: DueMs | None = None
    to_ms: DueMs | None = None
    after: Cursor | None = None
    """The field `next` of the page before."""
    rows: Annotated[int, msgspec.Meta(ge=1, le=MESSAGES_MAX)] = MESSAGES


class RecurrenceView(Document, frozen=True, kw_only=True):
    """When a message is due again after its completion: a cron expression, or an interval."""

    cron: str | None = None
    zone: str | None = None
    every_ms: int | None = None
    missed: Literal["skip", "once", "all"]
    until_ms: int | None = None
    left: int | None = None
    """The number of occurrences that are left, with this one; null: without end."""


class MessageRow(Document, frozen=True, kw_only=True):
    """One message of a list. `due_ms` is the end of the lease while a consumer holds it."""

    id: str
    status: TimelineStatus
    due_ms: int
    scheduled_ms: int
    attempts: int
    bytes: int
    group: str
    key: str | None = None
    key_base64: str | None = None
    """For a key that is not text."""
    holder: str | None = None
    origin: str | None = None
    """For a dead letter: the timeline that it can return to."""
    recurrence: RecurrenceView | None = None


class MessagePage(Document, frozen=True, kw_only=True):
    """Messages in the order of their due times."""

    messages: list[MessageRow]
    next: str | None
    """For the query of the next page; null after the last one."""
    scanned: int
    """Messages that were compared with the search. A page may have none, and the next one some."""
    now_ms: int


class MessageHeader(Document, frozen=True, kw_only=True):
    """A header of a scheduled record."""

    name: str
    value: str | None = None
    value_base64: str | None = None


class MessageView(MessageRow, frozen=True, kw_only=True):
    """One message with its content."""

    timeline: str
    broker: int | None = None
    body: str | None = None
    """The text of the body; null when it is too long to show, or no text."""
    body_base64: str | None = None
    """The beginning of a body that is no text."""
    is_cut: bool = False
    """Whether the body is longer than what is here."""
    topic: str | None = None
    """For a scheduled record: its topic, partition and headers. The body is its value."""
    partition: int | None = None
    headers: tuple[MessageHeader, ...] = ()
    lease_ends_ms: int | None = None
    now_ms: int


class MessageIds(TimelinePlace, frozen=True, kw_only=True):
    """Messages of a timeline."""

    ids: Annotated[list[MessageIdText], msgspec.Meta(min_length=1, max_length=IDS_MAX)]


class MovesInput(MessageIds, frozen=True, kw_only=True):
    """Messages that get another due time. A time in the past is now."""

    due_ms: DueMs


class ChangeOutcome(Document, frozen=True, kw_only=True):
    """What became of one message. Without an error it was changed."""

    id: str
    error: str | None = None


class ChangeOutcomes(Document, frozen=True, kw_only=True):
    """The outcome for each message, in the order of the request."""

    outcomes: list[ChangeOutcome]


class RetriesInput(TimelinePlace, frozen=True, kw_only=True):
    """Dead letters that return to their timelines: some by id, or those of a selection, in the order of due times."""

    ids: Annotated[list[MessageIdText], msgspec.Meta(min_length=1, max_length=RETRIES_MAX)] | None = None
    search: Annotated[str, msgspec.Meta(max_length=SEARCH_CHARS_MAX)] = ""
    from_ms: DueMs | None = None
    to_ms: DueMs | None = None
    after: Cursor | None = None
    """The field `next` of the request before."""
    preview: bool = False
    """Only count what would be retried."""


class RetriesResult(Document, frozen=True, kw_only=True):
    """The result of one step."""

    retried: int
    """With `preview`: those that would be."""
    kept: int
    """Messages that stay: those that come from no known timeline, and those that a consumer holds."""
    reasons: list[str]
    """Why some stay; one line for each reason."""
    next: str | None
    """For the next step; null after the last one."""
