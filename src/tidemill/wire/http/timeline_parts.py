"""The questions about timelines that brokers ask each other, and their answers."""

from tidemill.wire.http.document import Document
from tidemill.wire.http.timelines import (
    FutureQuery,
    MessageIds,
    MessagesQuery,
    MovesInput,
    RetriesInput,
    TimelineMember,
)


class TimelinesAsked(Document, frozen=True, kw_only=True):
    """Which timelines a broker has: all of them, or the one of this name."""

    timeline: str | None = None


class TimelineEntry(Document, frozen=True, kw_only=True):
    """A timeline that a broker has. `consumers` are those that are connected to it."""

    timeline: str
    state: str
    consumers: int
    lease_ms: int


class TimelinesHere(Document, frozen=True, kw_only=True):
    """The timelines of one broker that the client may describe."""

    is_on: bool
    is_shared: bool
    timelines: list[TimelineEntry]


class TimelineCountsAsked(Document, frozen=True, kw_only=True):
    """The timelines whose messages are counted."""

    timelines: list[str]


class MessageCounts(Document, frozen=True, kw_only=True):
    """The messages of a timeline by state."""

    waiting: int
    available: int
    leased: int


class TimelineCountsHere(Document, frozen=True, kw_only=True):
    """The counts by timeline; those that would take too long are missing."""

    counts: dict[str, MessageCounts]


class TimelineAsked(Document, frozen=True, kw_only=True):
    """One timeline."""

    timeline: str


class TimelineDetail(Document, frozen=True, kw_only=True):
    """What the broker of a timeline knows about it, except its consumers."""

    settings: dict[str, str]
    counts: MessageCounts
    late: int
    first_due_ms: int | None
    last_due_ms: int | None
    now_ms: int
    dead_letters: int | None
    dead_letters_of: list[str]
    health: str
    health_reasons: list[str]


class TimelineMembersHere(Document, frozen=True, kw_only=True):
    """The consumers of a timeline at one broker, and the operations of its clients."""

    members: list[TimelineMember]
    totals: dict[str, int]
    delivery: str = "running"
    delivery_reason: str = ""


class FutureAsked(Document, frozen=True, kw_only=True):
    """A histogram of one timeline."""

    timeline: str
    query: FutureQuery


class MessagesAsked(Document, frozen=True, kw_only=True):
    """Messages of one timeline."""

    timeline: str
    query: MessagesQuery


class MessageAsked(Document, frozen=True, kw_only=True):
    """One message."""

    timeline: str
    id: str


class MessageBody(Document, frozen=True, kw_only=True):
    """The whole body of a message."""

    body: bytes


class SettingsAsked(Document, frozen=True, kw_only=True):
    """Settings of one timeline: those of a new one, or changes."""

    timeline: str
    settings: dict[str, str]


class TimelineChanged(Document, frozen=True, kw_only=True):
    """A timeline was created, altered or deleted; `is_new` only by this call."""

    is_new: bool = False
    is_shared: bool = False


class CancelsAsked(Document, frozen=True, kw_only=True):
    """Messages to cancel."""

    timeline: str
    messages: MessageIds


class ReleasesAsked(Document, frozen=True, kw_only=True):
    """Messages whose leases an administrator ends."""

    timeline: str
    messages: MessageIds


class MovesAsked(Document, frozen=True, kw_only=True):
    """Messages to move."""

    timeline: str
    moves: MovesInput


class RetriesAsked(Document, frozen=True, kw_only=True):
    """Dead letters to retry."""

    timeline: str
    retries: RetriesInput
