"""`tidemill timeline`: creates, describes and deletes timelines; schedules, consumes, cancels and moves messages."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from tidemill.cli import timeline_messages, timeline_work
from tidemill.cli.connection import Client
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json, Yes
from tidemill.cli.output import confirm, say, show, show_document, show_json
from tidemill.cli.timeline_documents import timeline_view
from tidemill.cli.timeline_options import DEFAULT_ADDRESS, Address, Name, timeline

if TYPE_CHECKING:
    from tidemill.client.timelines import TimelineDescription
    from tidemill.client.timelines.aio import SettingKeywords

app = typer.Typer(help="Schedule messages and deliver them at their due time.", no_args_is_help=True)

LeaseMs = Annotated[int | None, typer.Option("--lease-ms", help="Default length of a lease.")]
MaxAttempts = Annotated[
    int | None, typer.Option("--max-attempts", help="Leases of a message before it is a dead letter.")
]
DeadLetter = Annotated[str | None, typer.Option("--dead-letter", help="timeline:NAME or topic:NAME.")]
WindowMs = Annotated[int | None, typer.Option("--window-ms", help="Interval at which work is divided among consumers.")]
BodyBytesMax = Annotated[int | None, typer.Option("--body-bytes-max", help="Largest message body in bytes.")]
Dealer = Annotated[str | None, typer.Option("--dealer", help="How work is divided among consumers: racks or ranges.")]

FailingPercent = Annotated[
    int | None,
    typer.Option(
        "--failing-percent", help="Stop pushes while most consumers fail this part of their leases. 0: never."
    ),
]


@app.command()
def create(
    name: Name,
    lease_ms: LeaseMs = None,
    max_attempts: MaxAttempts = None,
    dead_letter: DeadLetter = None,
    window_ms: WindowMs = None,
    body_bytes_max: BodyBytesMax = None,
    dealer: Dealer = None,
    failing_percent: FailingPercent = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the timeline exists with the same settings.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Create a timeline.

    Example: tidemill timeline create reminders --lease-ms 30000
    """
    settings = _settings(lease_ms, max_attempts, dead_letter, window_ms, body_bytes_max, dealer, failing_percent)
    with timeline(address, client, name) as opened:
        found = opened.create(**settings)
    if not found.created and not if_not_exists:
        raise CommandFailed(f"timeline {name!r} already exists; use --if-not-exists to accept it")
    if as_json:
        show_json({**_row(found), "created": found.created})
    else:
        say(f"created {name}" if found.created else f"{name} already exists")


@app.command()
def alter(
    name: Name,
    lease_ms: LeaseMs = None,
    max_attempts: MaxAttempts = None,
    dead_letter: DeadLetter = None,
    window_ms: WindowMs = None,
    body_bytes_max: BodyBytesMax = None,
    dealer: Dealer = None,
    failing_percent: FailingPercent = None,
    address: Address = DEFAULT_ADDRESS,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Change settings of a timeline. Other settings stay.

    Example: tidemill timeline alter reminders --max-attempts 5 --dead-letter topic:reminders.dlq
    """
    settings = _settings(lease_ms, max_attempts, dead_letter, window_ms, body_bytes_max, dealer, failing_percent)
    if not settings:
        raise WrongUse("nothing to change; give a setting, for example --lease-ms 60000")
    with timeline(address, client, name) as opened:
        altered = opened.alter(**settings)
    if as_json:
        show_json(_row(altered))
    else:
        say(f"altered {name}")


@app.command()
def describe(name: Name, address: Address = DEFAULT_ADDRESS, client: Client = None, as_json: Json = False) -> None:
    """Show a timeline: settings, consumers, and the number of messages in each state.

    Example: tidemill timeline describe reminders
    """
    with timeline(address, client, name) as opened:
        described = opened.describe()
        counts = {status: opened.count(status) for status in ("waiting", "available", "leased")}
    if as_json:
        show_document(timeline_view(described, counts))
        return
    settings = dict(sorted(described.settings.items()))
    delivery = ": ".join(each for each in (described.delivery, described.delivery_reason) if each)
    facts = {"state": described.state, "delivery": delivery, "consumers": described.consumers, **counts, **settings}
    show([{"name": key, "value": str(value)} for key, value in facts.items()], ("name", "value"), as_json=False)


@app.command()
def delete(
    name: Name,
    yes: Yes = False,
    address: Address = DEFAULT_ADDRESS,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Delete a timeline and all its messages.

    Example: tidemill timeline delete reminders --yes
    """
    with timeline(address, client, name) as opened:
        opened.describe()
        confirm(f"delete {name} and all its messages?", yes=yes)
        opened.delete()
    if as_json:
        show_json({"timeline": name, "state": "deleting"})
    else:
        say(f"deleted {name}")


def _settings(
    lease_ms: int | None,
    max_attempts: int | None,
    dead_letter: str | None,
    window_ms: int | None,
    body_bytes_max: int | None,
    dealer: str | None,
    failing_percent: int | None,
) -> "SettingKeywords":
    given: dict[str, object | None] = {
        "lease_ms": lease_ms,
        "max_attempts": max_attempts,
        "dead_letter": dead_letter,
        "window_ms": window_ms,
        "body_bytes_max": body_bytes_max,
        "dealer": dealer,
        "failing_percent": failing_percent,
    }
    return cast("SettingKeywords", {name: value for name, value in given.items() if value is not None})


def _row(described: "TimelineDescription") -> dict[str, object]:
    return {
        "timeline": described.name,
        "state": described.state,
        "consumers": described.consumers,
        "settings": dict(described.settings),
    }


app.command("list")(timeline_messages.list_)
app.command()(timeline_messages.schedule)
app.command()(timeline_messages.cancel)
app.command()(timeline_messages.move)
app.command()(timeline_messages.count)
app.command()(timeline_messages.histogram)
app.command()(timeline_work.work)
