"""`tidemill cluster clock`: shows whether brokers trust their clocks, and lets an operator accept a clock."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.connection import TIMEOUT_S, Bootstrap, Client, admin, broker_at, reach
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json
from tidemill.cli.output import confirm, say, show, show_json

if TYPE_CHECKING:
    from tidemill.pipelines.spec.core.broker import KafkaBroker

app = typer.Typer(help="Show the clocks of the brokers. Accept a clock that is in doubt.", invoke_without_command=True)

CLOCK, ACCEPT_CLOCK = "tidemill.clock", "tidemill.clock.accept"
IN_DOUBT, AWAY = "in doubt", "unknown"
ANSWER_S = 3.0
"""Timeout of the request to a broker."""
COLUMNS = ("broker", "clock", "utc", "in doubt for", "accepted in", "last accepted by")
DIFFERENCE_COLUMNS = ("broker", "compared with", "difference ms", "error ms")
UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))

Broker = Annotated[
    list[int] | None,
    typer.Option("--broker", metavar="NUMBER", min=0, help="Only this broker. Repeatable. Default: all."),
]


@app.callback()
def clock(
    context: typer.Context,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Show for each broker whether it trusts its wall clock, why not, and the difference to other clocks.

    While a clock is in doubt, its broker deletes nothing by time: no retention, compaction or expiry.

    Example: tidemill cluster clock
    """
    if context.invoked_subcommand is not None:
        return
    clocks = _clocks(broker_at(bootstrap, access))
    if as_json:
        show_json([{"broker": number, **status} for number, status in clocks.items()])
        return
    show([_row(number, status) for number, status in clocks.items()], COLUMNS, as_json=False)
    for number, status in clocks.items():
        for reason in status.get("reasons", ()):
            say(f"broker {number}: {reason['text']}")
    differences = [
        {
            "broker": number,
            "compared with": one["target"],
            "difference ms": one["offset_ms"],
            "error ms": one["error_ms"],
        }
        for number, status in clocks.items()
        for one in status.get("differences", ())
    ]
    if differences:
        show(differences, DIFFERENCE_COLUMNS, as_json=False)


@app.command()
def accept(
    brokers: Broker = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Confirm that clocks in doubt are correct. Their brokers then delete by time again.

    Example: tidemill cluster clock accept --broker 1
    """
    broker = broker_at(bootstrap, access)
    clocks = _clocks(broker)
    unknown = sorted(set(brokers or ()) - set(clocks))
    if unknown:
        raise WrongUse(f"there is no broker {unknown[0]}; list the brokers with: tidemill cluster clock")
    doubtful = {
        number: status
        for number, status in clocks.items()
        if status["state"] == IN_DOUBT and (not brokers or number in brokers)
    }
    if not as_json:
        _announce(doubtful)
    if doubtful:
        confirm(f"accept the clock of {len(doubtful)} brokers?", yes=yes)
    for number in doubtful:
        _accept(admin(broker), number)
    if as_json:
        show_json({"accepted": sorted(doubtful)})
    elif doubtful:
        say(f"accepted the clock of broker{'s' if len(doubtful) > 1 else ''} {', '.join(map(str, sorted(doubtful)))}")


def _announce(doubtful: dict[int, dict[str, Any]]) -> None:
    if not doubtful:
        say("no clock is in doubt; nothing to accept")
        return
    for number, status in doubtful.items():
        for reason in status["reasons"]:
            say(f"broker {number} at {_utc(status['wall_ms'])}: {reason['text']}")
    say("If these clocks are correct, accept them. The brokers then delete everything that is expired: records past")
    say("retention.ms, tombstones, offsets of empty groups, idle producers and transactional ids.")


def _accept(client: Any, number: int) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    change = ConfigEntry(ACCEPT_CLOCK, "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[change])
    try:
        client.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        raise CommandFailed(f"accept the clock of broker {number}: {error}") from None


def _clocks(broker: "KafkaBroker") -> dict[int, dict[str, Any]]:
    """The clock of every registered broker."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    from tidemill.client.kafka import ClientError, KafkaClient
    from tidemill.model.errors import KafkaError

    reach(broker)
    try:
        with KafkaClient(broker.options) as raw:
            described = raw.cluster().brokers
    except (KafkaError, ClientError) as error:
        raise CommandFailed(f"describe the cluster: {error}") from None
    client = admin(broker)
    asked = {}
    for node in described:
        if not node.missing:
            resource = ConfigResource(ResourceType.BROKER, str(node.node_id))
            asked[node.node_id] = client.describe_configs([resource], request_timeout=ANSWER_S)[resource]
    found: dict[int, dict[str, Any]] = {node.node_id: {"state": AWAY} for node in described}
    for number, future in asked.items():
        try:
            entry = future.result(TIMEOUT_S).get(CLOCK)
        except (KafkaException, TimeoutError):
            continue
        if entry is not None and entry.value:
            found[number] = json.loads(entry.value)
    return dict(sorted(found.items()))


def _row(number: int, status: dict[str, Any]) -> dict[str, Any]:
    doubtful = status["state"] == IN_DOUBT
    return {
        "broker": number,
        "clock": status["state"],
        "utc": _utc(status.get("wall_ms")),
        "in doubt for": _length(status["in_doubt_ms"]) if doubtful else None,
        "accepted in": _accepted_in(status) if doubtful else None,
        "last accepted by": status.get("accepted_by"),
    }


def _accepted_in(status: dict[str, Any]) -> str:
    left_ms = status["accepted_in_ms"]
    return "when accepted" if left_ms is None else _length(left_ms)


def _utc(ms: int | None) -> str | None:
    from datetime import UTC, datetime

    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "seconds")[:19]


def _length(ms: int) -> str:
    """A duration with at most two units, such as `5 h 59 min`."""
    parts = []
    for unit_ms, name in UNITS:
        count, ms = divmod(ms, unit_ms)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0 s"
