"""Options of the timeline commands: the address of the broker, times, and messages as rows."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from tidemill.cli.durations import duration_ms, moment_ms
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.client.timelines.message import due_ms, every_ms, from_ms
from tidemill.model.addresses import parse_address
from tidemill.model.errors import InvalidConfig

if TYPE_CHECKING:
    from tidemill.client.timelines import RecurrenceRule, Stored, Timeline
    from tidemill.client.timelines.message import MissedPolicyName

DEFAULT_ADDRESS = "127.0.0.1:6174"
TIMEOUT_MS = 10_000
"""Longer than a broker waits for a partition that moves to another broker, so that its answer arrives."""
CONNECT_TIMEOUT_MS = 1_000
"""Shorter than the default for programs, so that a user soon sees that no broker answers."""
BODY_CHARS_MAX = 60
LOOK_S = 1.0

Address = Annotated[
    str,
    typer.Option("--address", "-a", envvar="TIDEMILL_BOOTSTRAP_GRPC", help="gRPC address of the broker: host:port."),
]
Name = Annotated[str, typer.Argument(metavar="TIMELINE", help="Name of the timeline.")]
Group = Annotated[str, typer.Option("--group", "-g", help="Producer group that owns the messages.")]
Status = Annotated[
    Literal["waiting", "available", "leased"] | None,
    typer.Option("--status", "-s", help="Only waiting, available or leased messages."),
]
From = Annotated[str | None, typer.Option("--from", help="Due from: 2026-12-24T18:00:00Z, +1h, now.")]
To = Annotated[str | None, typer.Option("--to", help="Due before: 2026-12-25, +2d.")]
In = Annotated[str | None, typer.Option("--in", help="Due after this time: 250ms, 5s, 1h30m.")]
Cron = Annotated[
    str | None,
    typer.Option("--cron", help="Due again at these times: minute hour day-of-month month day-of-week, or @daily."),
]
Every = Annotated[str | None, typer.Option("--every", help="Due again after this time: 30s, 5m, 1d.")]
Zone = Annotated[str | None, typer.Option("--zone", help="Time zone of --cron: Europe/Berlin. Default: UTC.")]
Missed = Annotated[
    Literal["skip", "once", "all"] | None,
    typer.Option("--missed", help="Occurrences that could not be delivered in time. Default: once for all of them."),
]
Until = Annotated[str | None, typer.Option("--until", help="No occurrence after this time: 2027-01-01, +30d.")]
Count = Annotated[int | None, typer.Option("--count", min=1, help="Number of occurrences.")]
At = Annotated[str | None, typer.Option("--at", help="Due at this time: 2026-12-24T18:00:00Z, or epoch milliseconds.")]


@contextmanager
def timeline(address: str, client: list[str] | None, name: str, *, group: str = "") -> Iterator["Timeline"]:
    """A client of the timeline, with the settings of --client. The connection is closed with the command."""
    with opened_timeline(address, grpc_settings(address, client), name, group=group) as opened:
        yield opened


@contextmanager
def opened_timeline(address: str, settings: Mapping[str, str], name: str, *, group: str = "") -> Iterator["Timeline"]:
    """A client of the timeline with these settings for TLS and login."""
    from tidemill.client.timelines import Timeline

    with (
        reached(address),
        Timeline(
            address,
            name,
            group=group,
            timeout_ms=TIMEOUT_MS,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            client=settings,
        ) as opened,
    ):
        yield opened


def grpc_settings(address: str, client: list[str] | None) -> Mapping[str, str]:
    """The settings of --client for the gRPC server."""
    from tidemill.cli.connection import broker_at
    from tidemill.client.grpc_security import GRPC_CLIENT_NAMES, parse_grpc_security

    return broker_at(address, client, understood=GRPC_CLIENT_NAMES, check=parse_grpc_security).client


@contextmanager
def reached(address: str) -> Iterator[None]:
    """Turn connection errors into one line, also when another kind of server listens at the address."""
    from tidemill.model.timeline_errors import Unreachable

    try:
        places = [parse_address(each) for each in address.split(",")]
    except InvalidConfig as error:
        raise WrongUse(f"--address: {error}") from None
    try:
        yield
    except Unreachable:
        if any(_listens(place) for place in places):
            raise CommandFailed(
                f"{address} accepts connections but does not answer gRPC calls; use the grpc= address of the "
                f"broker's ready line, for example grpc={DEFAULT_ADDRESS}, or try again if the broker is busy"
            ) from None
        raise


def _listens(place: tuple[str, int]) -> bool:
    import socket

    try:
        socket.create_connection(place, LOOK_S).close()
    except OSError:
        return False
    return True


def now_ms() -> int:
    """The current time of this machine."""
    return time.time_ns() // 1_000_000


def recurrence_of(
    cron: str | None, every: str | None, zone: str | None, missed: str | None, until: str | None, count: int | None
) -> "RecurrenceRule | None":
    """The recurrence of the options, if there is one."""
    from tidemill.client.timelines import RecurrenceRule

    if cron is None and every is None:
        if zone is not None or missed is not None or until is not None or count is not None:
            raise WrongUse("--zone, --missed, --until and --count belong to a recurrence; add --cron or --every")
        return None
    if cron is not None and every is not None:
        raise WrongUse("give either --cron or --every")
    interval = None if every is None else timedelta(milliseconds=duration_ms(every))
    policy = cast("MissedPolicyName", missed or "once")
    return RecurrenceRule(cron, interval, zone, policy, time_s(until), count)


def due_s(after: str | None, at: str | None) -> float:
    """The due time of `--in` or `--at` in seconds since 1970. Exactly one of them is given."""
    if (after is None) == (at is None):
        raise WrongUse("the due time is missing; give either --in 5s or --at 2026-12-24T18:00:00Z")
    due = now_ms() + duration_ms(after) if after is not None else moment_ms(at or "")
    return due / 1_000


def time_s(text: str | None) -> float | None:
    """Parse a time, or a time from now with a plus sign, into seconds since 1970."""
    if text is None:
        return None
    ms = now_ms() + duration_ms(text[1:]) if text.startswith("+") else moment_ms(text)
    return ms / 1_000


def shown_time(moment: datetime) -> str:
    """A time in UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def text_of(data: bytes | None) -> str | None:
    """Bytes as text, with a replacement character for bytes that are not text."""
    return None if data is None else data.decode("utf-8", "replace")


def row_of(message: "Stored") -> dict[str, Any]:
    """A message as a row of a table, shortened."""
    body = text_of(message.body) or ""
    if len(body) > BODY_CHARS_MAX:
        body = body[: BODY_CHARS_MAX - 1] + "…"
    return {
        "id": message.id,
        "due": shown_time(message.due),
        "status": message.status,
        "attempts": message.attempts,
        "key": text_of(message.key),
        "holder": message.holder or None,
        "body": body,
        "repeats": None if message.recurrence is None else repeats(message.recurrence),
    }


def repeats(rule: "RecurrenceRule") -> str:
    """A recurrence in a few words."""
    text = f"{rule.cron} {rule.zone}" if rule.cron is not None else f"every {shown_duration(rule.every)}"
    if rule.missed != "once":
        text += f", missed {rule.missed}"
    if rule.until is not None:
        text += f", until {shown_time(from_ms(due_ms(rule.until)))}"
    return text if rule.count is None else f"{text}, {rule.count} left"


def shown_duration(every: "timedelta | float | None") -> str:
    """An interval as --every takes it."""
    left_ms = every_ms(every or 0)
    parts = []
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)):
        if left_ms >= unit_ms:
            parts.append(f"{left_ms // unit_ms}{unit}")
            left_ms %= unit_ms
    return "".join(parts) or "0s"
