"""`tidemill timeline`: create, look at and delete timelines; schedule, work, cancel and move messages."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from tidemill.cli import timeline_messages, timeline_work
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json, Yes
from tidemill.cli.output import confirm, say, show, show_json
from tidemill.cli.timeline_options import DEFAULT_ADDRESS, Address, Name, timeline

if TYPE_CHECKING:
    from tidemill.client.timelines import TimelineDescription
    from tidemill.client.timelines.aio import SettingKeywords

app = typer.Typer(help="Messages that are delivered at their due time, under a lease.", no_args_is_help=True)

LeaseMs = Annotated[int | None, typer.Option("--lease-ms", help="How long a consumer holds a message by default.")]
MaxAttempts = Annotated[int | None, typer.Option("--max-attempts", help="Leases before a message is a dead letter.")]
DeadLetter = Annotated[str | None, typer.Option("--dead-letter", help="timeline:NAME or topic:NAME.")]
WindowMs = Annotated[int | None, typer.Option("--window-ms", help="How often work is dealt anew to consumers.")]
BodyBytesMax = Annotated[int | None, typer.Option("--body-bytes-max", help="Largest body of a message.")]
Dealer = Annotated[str | None, typer.Option("--dealer", help="racks or ranges: how work is dealt to consumers.")]


@app.command()
def create(
    name: Name,
    lease_ms: LeaseMs = None,
    max_attempts: MaxAttempts = None,
    dead_letter: DeadLetter = None,
    window_ms: WindowMs = None,
    body_bytes_max: BodyBytesMax = None,
    dealer: Dealer = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="An existing timeline with the same settings is fine.")
    ] = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: Json = False,
) -> None:
    """Create a timeline.

    Example: tidemill timeline create reminders --lease-ms 30000
    """
    settings = _settings(lease_ms, max_attempts, dead_letter, window_ms, body_bytes_max, dealer)
    with timeline(address, name) as opened:
        found = opened.create(**settings)
    if not found.created and not if_not_exists:
        raise CommandFailed(f"timeline {name!r} exists already; --if-not-exists if that is fine")
    if as_json:
        show_json({**_row(found), "created": found.created})
    else:
        say(f"created {name}" if found.created else f"{name} exists already")


@app.command()
def alter(
    name: Name,
    lease_ms: LeaseMs = None,
    max_attempts: MaxAttempts = None,
    dead_letter: DeadLetter = None,
    window_ms: WindowMs = None,
    body_bytes_max: BodyBytesMax = None,
    dealer: Dealer = None,
    address: Address = DEFAULT_ADDRESS,
    as_json: Json = False,
) -> None:
    """Change settings of a timeline; those not named stay.

    Example: tidemill timeline alter reminders --max-attempts 5 --dead-letter topic:reminders.dlq
    """
    settings = _settings(lease_ms, max_attempts, dead_letter, window_ms, body_bytes_max, dealer)
    if not settings:
        raise WrongUse("say what to change, for example --lease-ms 60000")
    with timeline(address, name) as opened:
        altered = opened.alter(**settings)
    if as_json:
        show_json(_row(altered))
    else:
        say(f"altered {name}")


@app.command()
def describe(name: Name, address: Address = DEFAULT_ADDRESS, as_json: Json = False) -> None:
    """Show a timeline: settings, consumers, and how many messages it has in each state.

    Example: tidemill timeline describe reminders
    """
    with timeline(address, name) as opened:
        described = opened.describe()
        counts = {status: opened.count(status) for status in ("waiting", "available", "leased")}
    if as_json:
        show_json({**_row(described), **counts})
        return
    settings = dict(sorted(described.settings.items()))
    facts = {"state": described.state, "consumers": described.consumers, **counts, **settings}
    show([{"name": key, "value": str(value)} for key, value in facts.items()], ("name", "value"), as_json=False)


@app.command()
def delete(
    name: Name,
    yes: Yes = False,
    address: Address = DEFAULT_ADDRESS,
    as_json: Json = False,
) -> None:
    """Delete a timeline and all its messages.

    Example: tidemill timeline delete reminders --yes
    """
    with timeline(address, name) as opened:
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
) -> "SettingKeywords":
    given: dict[str, object | None] = {
        "lease_ms": lease_ms,
        "max_attempts": max_attempts,
        "dead_letter": dead_letter,
        "window_ms": window_ms,
        "body_bytes_max": body_bytes_max,
        "dealer": dealer,
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
