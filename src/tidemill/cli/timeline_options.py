"""What the timeline commands share: where the broker is, times as people write them, and messages as rows."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tidemill.cli.durations import duration_ms, moment_ms
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.output import text_fields
from tidemill.model.errors import InvalidConfig
from tidemill.settings import parse_address

if TYPE_CHECKING:
    from tidemill.client.timelines import Stored, Timeline

DEFAULT_ADDRESS = "127.0.0.1:6174"
PATIENCE = {"timeout_ms": 5_000, "connect_timeout_ms": 1_000}
"""Who types a command wants to know soon that nobody answers; a program waits for longer."""
BODY_CHARS_MAX = 60
LOOK_S = 1.0

Address = Annotated[
    str, typer.Option("--address", "-a", envvar="TIDEMILL_GRPC", help="gRPC address of the broker: host:port.")
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
At = Annotated[str | None, typer.Option("--at", help="Due at this time: 2026-12-24T18:00:00Z, or epoch milliseconds.")]


@contextmanager
def timeline(address: str, name: str, *, group: str = "") -> Iterator["Timeline"]:
    """The timeline to talk to; the connection ends with the command."""
    from tidemill.client.timelines import Timeline

    with reached(address), Timeline(address, name, group=group, **PATIENCE) as opened:
        yield opened


@contextmanager
def reached(address: str) -> Iterator[None]:
    """What is done with the broker at an address; where something else listens, the error says so."""
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
                f"{address} accepts connections but does not answer as a broker's gRPC door; which port is which, "
                f"a broker says in its ready line: grpc={DEFAULT_ADDRESS}"
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
    """The time by this machine's clock."""
    return time.time_ns() // 1_000_000


def due_s(after: str | None, at: str | None) -> float:
    """The due time that `--in` or `--at` names, in seconds since 1970; exactly one of them is given."""
    if (after is None) == (at is None):
        raise WrongUse("say when: either --in 5s or --at 2026-12-24T18:00:00Z")
    due = now_ms() + duration_ms(after) if after is not None else moment_ms(at or "")
    return due / 1_000


def time_s(text: str | None) -> float | None:
    """A time, or one ahead of now with a plus sign, in seconds since 1970."""
    if text is None:
        return None
    ms = now_ms() + duration_ms(text[1:]) if text.startswith("+") else moment_ms(text)
    return ms / 1_000


def shown_time(moment: datetime) -> str:
    """A time to the millisecond, in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def text_of(data: bytes | None) -> str | None:
    """Bytes as text, with a mark for what is none."""
    return None if data is None else data.decode("utf-8", "replace")


def row_of(message: "Stored", *, whole: bool) -> dict[str, Any]:
    """A message as a row; whole for programs, cut for people."""
    body = text_of(message.body) or ""
    if len(body) > BODY_CHARS_MAX:
        body = body[: BODY_CHARS_MAX - 1] + "…"
    row = {
        "id": message.id,
        "due": shown_time(message.due),
        "status": message.status,
        "attempts": message.attempts,
        "key": text_of(message.key),
        "holder": message.holder or None,
        "body": body,
    }
    return row | text_fields(key=message.key, body=message.body or b"") if whole else row
