"""The arguments and results of calls between brokers as values of frames."""

from collections.abc import Sequence
from typing import Any

from tidemill.model.errors import TidemillError
from tidemill.model.timeline_errors import by_name
from tidemill.timelines.core.errors import StoreUnavailable, TimelineError
from tidemill.timelines.core.message import MessageStatus, Selection
from tidemill.timelines.core.timeline import (
    Alter,
    Create,
    Delete,
    MakeReady,
    Purge,
    Step,
    TimelineSettings,
)

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Keys and bodies in one answer, except for the first message, which is returned with any size."""
REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""Bodies in one call that schedules, except that a larger one is sent alone."""
REQUEST_MESSAGES_MAX = 2_000
"""Messages in one call that schedules, so that other calls need not wait long for its transaction."""


def selection_row(selection: Selection) -> list[Any]:
    """A selection as a row."""
    status = None if selection.status is None else selection.status.value
    return [selection.start_ms, selection.end_ms, status, selection.buckets, selection.ids]


def selection_from(row: Sequence[Any]) -> Selection:
    """The selection of `selection_row`."""
    start_ms, end_ms, status, buckets, ids = row
    return Selection(
        start_ms,
        end_ms,
        None if status is None else MessageStatus(status),
        None if buckets is None else tuple((low, high) for low, high in buckets),
        None if ids is None else tuple(ids),
    )


def step_row(step: Step) -> list[Any]:
    """A step as a row."""
    match step:
        case Create(name, settings) | Alter(name, settings):
            return [type(step).__name__, name, settings.to_json()]
        case Purge(name, limit):
            return ["Purge", name, limit]
        case _:
            return [type(step).__name__, step.name]


def step_from(row: Sequence[Any]) -> Step:
    """The step of `step_row`."""
    match row:
        case ["Create", name, settings]:
            return Create(name, TimelineSettings.from_json(settings))
        case ["Alter", name, settings]:
            return Alter(name, TimelineSettings.from_json(settings))
        case ["Purge", name, limit]:
            return Purge(name, limit)
        case ["MakeReady", name]:
            return MakeReady(name)
        case ["Delete", name]:
            return Delete(name)
    raise ValueError(f"{row[:1]} is not a step of a timeline")


def error_from(name: str, text: str) -> TidemillError:
    """The error that another broker has answered with."""
    kind = by_name(name)
    return kind(text) if kind is not TimelineError else StoreUnavailable(text)
