"""A timeline: its name, its settings, and its lifecycle from *creating* over *ready* to *deleting*.

A timeline is created in the state *creating*, is usable when the store is ready for it, and is deleted in bounded
steps. `Delete` returns at once and makes the timeline unusable, `Purge` removes some messages at a time, and the last
purge frees the name. Each step is one durable write, so a broker that finds a timeline in *creating* or *deleting*
after a crash can continue with `MakeReady` or `Purge`. Each timeline has a number that is never reused, so data of an
old timeline can never appear in a new one of the same name.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import NamedTuple

from tidemill.model.topics import INTERNAL
from tidemill.timelines.core.errors import (
    BadSetting,
    BadTimelineName,
    TimelineDeleting,
    TimelineExists,
    TimelineNotReady,
    UnknownTimeline,
)
from tidemill.timelines.core.lease import LEASE_MS_MAX, LEASE_MS_MIN

NAME_CHARS_MAX = 249  # as for Kafka's topics, so that each topic can have a timeline of its name
PURGE_MESSAGES_MAX = 10_000
WINDOW_MS_MAX = 3_600_000
BODY_BYTES_LIMIT = 64 * 1024 * 1024
ATTEMPTS_LIMIT = 1_000_000

TIMELINE = "timeline:"
"""The prefix of a timeline in the setting `dead_letter`."""
SCHEDULE = "__schedule."
"""The prefix of the timeline that holds the scheduled records of a topic."""
WAITING_PREFIX = "__waiting."
"""The same prefix when a replicated journal is the source of truth, and the timeline only follows it."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def resource_of(timeline: str) -> str:
    """The topic whose ACLs protect a timeline: one of its own name, or the topic whose scheduled records it holds."""
    prefix = next((each for each in (SCHEDULE, WAITING_PREFIX) if timeline.startswith(each)), "")
    return timeline.removeprefix(prefix)


class TimelineState(Enum):
    """The state of a timeline in its lifecycle."""

    CREATING = "creating"
    READY = "ready"
    DELETING = "deleting"


class DealerKind(Enum):
    """How buckets are dealt to consumers."""

    RANGES = "ranges"
    RACKS = "racks"


@dataclass(frozen=True, slots=True)
class TimelineSettings:
    """The settings of one timeline."""

    lease_ms: int = 30_000
    max_attempts: int = 0  # 0: no limit
    dead_letter: str = ""  # "timeline:NAME" or "topic:NAME"; required with max_attempts
    window_ms: int = 10_000
    body_bytes_max: int = 1024 * 1024
    dealer: DealerKind = DealerKind.RACKS
    failing_percent: int = 80
    """A consumer fails when this part of its leases ends without a completion. 0: pushes never stop."""

    def check(self) -> None:
        """Reject values that are invalid, alone or together."""
        _within("lease_ms", self.lease_ms, LEASE_MS_MIN, LEASE_MS_MAX)
        _within("max_attempts", self.max_attempts, 0, ATTEMPTS_LIMIT)
        _within("window_ms", self.window_ms, 1, WINDOW_MS_MAX)
        _within("failing_percent", self.failing_percent, 0, 100)
        _within("body_bytes_max", self.body_bytes_max, 0, BODY_BYTES_LIMIT)
        kind, _, name = self.dead_letter.partition(":")
        if self.dead_letter and (kind not in {"timeline", "topic"} or not _NAME.fullmatch(name)):
            raise BadSetting(f"dead_letter {self.dead_letter[:100]!r} must be timeline:NAME or topic:NAME")
        if name in INTERNAL or name.startswith((SCHEDULE, WAITING_PREFIX)):
            raise BadSetting(f"dead_letter {self.dead_letter!r} is an internal name of the broker; choose another name")
        if self.max_attempts and not self.dead_letter:
            raise BadSetting("max_attempts needs dead_letter: set where messages go after the last attempt")

    def exhausted(self, attempts: int) -> bool:
        """Whether a message that was leased `attempts` times must not be tried again."""
        return 0 < self.max_attempts <= attempts

    def to_json(self) -> str:
        """The settings as the stores keep them."""
        return json.dumps({**asdict(self), "dealer": self.dealer.value}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "TimelineSettings":
        """Read the output of `to_json`; settings of a later version are ignored."""
        known = {one.name for one in fields(cls)}
        values = {name: value for name, value in json.loads(text).items() if name in known}
        return cls(**{**values, "dealer": DealerKind(values.get("dealer", DealerKind.RACKS.value))})


@dataclass(frozen=True, slots=True)
class TimelineInfo:
    """A timeline in the catalogue."""

    name: str
    number: int
    state: TimelineState
    settings: TimelineSettings


class Created(NamedTuple):
    """A timeline that exists now, and whether it was created by this call."""

    timeline: TimelineInfo
    is_new: bool


class Catalogue(NamedTuple):
    """All timelines, and the store's own clock (to notice drift); None if the store uses the clock of this machine."""

    timelines: tuple[TimelineInfo, ...]
    now_ms: int | None


@dataclass(frozen=True, slots=True)
class Create:
    """Add the timeline to the catalogue. Repeating it changes nothing."""

    name: str
    settings: TimelineSettings = field(default_factory=TimelineSettings)


@dataclass(frozen=True, slots=True)
class MakeReady:
    """The store is ready for the timeline: clients may use it."""

    name: str


@dataclass(frozen=True, slots=True)
class Alter:
    """Give the timeline other settings."""

    name: str
    settings: TimelineSettings


@dataclass(frozen=True, slots=True)
class Delete:
    """Make the timeline unusable at once; `Purge` does the work."""

    name: str


@dataclass(frozen=True, slots=True)
class Purge:
    """Remove up to `limit` messages of a timeline in deletion, and the timeline itself after the last one."""

    name: str
    limit: int = PURGE_MESSAGES_MAX


Step = Create | MakeReady | Alter | Delete | Purge


def check_name(name: str) -> None:
    """Reject a name that could not also be a topic's."""
    if name in {".", ".."} or len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise BadTimelineName(f"timeline name {name[:60]!a} must be 1 to {NAME_CHARS_MAX} of a-z A-Z 0-9 . _ -")


def refuse_kept(name: str) -> None:
    """Reject operations that only the broker may do on a timeline of scheduled records."""
    if name.startswith((SCHEDULE, WAITING_PREFIX)):
        raise BadTimelineName(
            f"timeline {name!r} is managed by the broker for scheduled records of a topic; use that topic instead"
        )


def refuse_followed(name: str) -> None:
    """Reject a change that would be lost when the timeline moves to another broker."""
    if name.startswith(WAITING_PREFIX):
        topic = name.removeprefix(WAITING_PREFIX)
        raise BadTimelineName(
            f"scheduled records of {topic!r} are changed through the topic: send it a record with tidemill-cancel or"
            " tidemill-move-to"
        )


def check_chain(name: str, settings: TimelineSettings, timelines: Mapping[str, TimelineInfo]) -> None:
    """Reject dead letters that lead back to their own timeline, because its messages would never end."""
    seen, target = {name}, settings.dead_letter
    while target.startswith(TIMELINE):
        following = target.removeprefix(TIMELINE)
        if following in seen:
            raise BadSetting(f"dead_letter {settings.dead_letter!r} of {name!r} leads back to {following!r}")
        seen.add(following)
        known = timelines.get(following)
        target = "" if known is None else known.settings.dead_letter


def usable(timeline: TimelineInfo | None, name: str) -> TimelineInfo:
    """The timeline, if clients may use it."""
    if timeline is None:
        raise UnknownTimeline(f"there is no timeline {name!r}; create it with: tidemill timeline create {name}")
    if timeline.state is TimelineState.CREATING:
        raise TimelineNotReady(f"timeline {name!r} is still being created; try again")
    if timeline.state is TimelineState.DELETING:
        raise TimelineDeleting(f"timeline {name!r} is being deleted")
    return timeline


def after(timeline: TimelineInfo | None, step: Step, number: int) -> TimelineInfo:
    """The timeline after a step; `number` is for a new one. Purging does not change the entry, only removes it."""
    if isinstance(step, Create):
        return _created(timeline, step, number)
    if timeline is None:
        raise UnknownTimeline(f"there is no timeline {step.name!r}")
    match step:
        case MakeReady():
            if timeline.state is TimelineState.DELETING:
                raise TimelineDeleting(f"timeline {step.name!r} is being deleted")
            return _with(timeline, state=TimelineState.READY)
        case Alter():
            step.settings.check()
            _check_dead_letter(step.name, step.settings)
            return _with(usable(timeline, step.name), settings=step.settings)
        case Delete():
            return _with(timeline, state=TimelineState.DELETING)
        case Purge():
            if timeline.state is not TimelineState.DELETING:
                raise BadSetting(f"timeline {step.name!r} is not being deleted; nothing was removed")
            return timeline


def _created(timeline: TimelineInfo | None, step: Create, number: int) -> TimelineInfo:
    check_name(step.name)
    step.settings.check()
    _check_dead_letter(step.name, step.settings)
    if timeline is None:
        return TimelineInfo(step.name, number, TimelineState.CREATING, step.settings)
    if timeline.state is TimelineState.DELETING:
        raise TimelineDeleting(f"timeline {step.name!r} is being deleted; create it when the deletion has finished")
    if timeline.settings != step.settings:
        raise TimelineExists(
            f"timeline {step.name!r} exists with other settings; change them with: tidemill timeline alter {step.name}"
        )
    return timeline


def _with(
    timeline: TimelineInfo, *, state: TimelineState | None = None, settings: TimelineSettings | None = None
) -> TimelineInfo:
    return TimelineInfo(timeline.name, timeline.number, state or timeline.state, settings or timeline.settings)


def _check_dead_letter(name: str, settings: TimelineSettings) -> None:
    if settings.dead_letter == f"timeline:{name}":
        raise BadSetting(f"timeline {name!r} cannot be its own dead letter: its messages would never end")


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadSetting(f"{name} = {value} must be between {low} and {high}")
