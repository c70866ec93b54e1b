"""`tidemill share`: lists, describes, configures, resets and deletes share groups (KIP-932)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.connection import Bootstrap, Client, broker_at, failing, reach
from tidemill.cli.durations import duration_ms
from tidemill.cli.errors import WrongUse
from tidemill.cli.options import Json, Yes
from tidemill.cli.output import confirm, say, show, show_json

if TYPE_CHECKING:
    from tidemill.client.kafka.routing import RequestRouter
    from tidemill.client.kafka.share_groups import DescribedShareGroup
    from tidemill.model.topics import TopicPartition

app = typer.Typer(help="List, describe, configure, reset and delete share groups.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
PLACE_COLUMNS = ("topic", "partition", "start", "lag", "members")


@contextmanager
def _connected(bootstrap: str | None, access: Any, what: str) -> Iterator["RequestRouter"]:
    from tidemill.client.kafka.options import parse_options
    from tidemill.client.kafka.routing import RequestRouter

    broker = broker_at(bootstrap, access)
    reach(broker)
    router = RequestRouter(parse_options({**broker.options, "bootstrap.servers": broker.servers}))
    try:
        with failing(what):
            yield router
    finally:
        router.close()


@app.command("list")
def list_(bootstrap: Bootstrap = None, access: Client = None, as_json: Json = False) -> None:
    """List the share groups with their state.

    Example: tidemill share list
    """
    from tidemill.client.kafka import share_groups

    with _connected(bootstrap, access, "list share groups") as router:
        groups = share_groups.list_groups(router)
    rows = [{"group": each.group, "state": each.state.lower()} for each in groups]
    show(rows, ("group", "state"), as_json=as_json, empty="there are no share groups yet")


@app.command()
def describe(group: Group, bootstrap: Bootstrap = None, access: Client = None, as_json: Json = False) -> None:
    """Show members, where the group begins in each partition, and how many records it has not done.

    Example: tidemill share describe mailers
    """
    from tidemill.client.kafka import share_groups

    with _connected(bootstrap, access, f"share group {group}") as router:
        found = share_groups.describe(router, group)
    rows = _rows(found)
    if as_json:
        members = [{**each._asdict(), "partitions": list(map(str, each.partitions))} for each in found.members]
        show_json({"group": found.group, "state": found.state.lower(), "members": members, "partitions": rows})
        return
    say(f"{group}: {found.state.lower()}, {len(found.members)} members")
    show(rows, PLACE_COLUMNS, as_json=False, empty="the group has read no partition yet")


def _rows(found: "DescribedShareGroup") -> list[dict[str, object]]:
    return [
        {
            "topic": each.place.topic,
            "partition": each.place.partition,
            "start": each.start_offset if each.start_offset >= 0 else None,
            "lag": each.lag if each.lag >= 0 else None,
            "members": sum(each.place in member.partitions for member in found.members),
        }
        for each in found.places
    ]


@app.command()
def configure(
    group: Group,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="WHERE", help="Where a new group begins: earliest or latest.")
    ] = None,
    lock: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long a record is locked for its consumer: 30s.")
    ] = None,
    max_deliveries: Annotated[int | None, typer.Option(help="How often a record is delivered at most.", min=1)] = None,
    max_locks: Annotated[int | None, typer.Option(help="Locked records of one partition at most.", min=1)] = None,
    retry_backoff: Annotated[
        str | None,
        typer.Option(metavar="DELAYS", help="Delay before a released record comes again: 1s,10s,1m. none: at once."),
    ] = None,
    committed: Annotated[
        bool | None, typer.Option("--committed/--uncommitted", help="Skip records of aborted transactions.")
    ] = None,
    bootstrap: Bootstrap = None,
    access: Client = None,
) -> None:
    """Set how records are delivered. The group need not exist; set where it begins before its first consumer.

    Example: tidemill share configure mailers --from earliest --max-deliveries 5 --retry-backoff 1s,10s,1m
    """
    from tidemill.client.kafka import share_groups

    isolation = None if committed is None else f"read_{'' if committed else 'un'}committed"
    delays = None if retry_backoff is None else _delays(retry_backoff)
    given = {
        "share.auto.offset.reset": begin,
        "share.record.lock.duration.ms": None if lock is None else str(duration_ms(lock)),
        "share.delivery.count.limit": None if max_deliveries is None else str(max_deliveries),
        "share.partition.max.record.locks": None if max_locks is None else str(max_locks),
        "tidemill.share.retry.backoff.ms": delays,
        "share.isolation.level": isolation,
    }
    changes: dict[str, str | None] = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise WrongUse("give at least one setting, for example --retry-backoff 1s,10s,1m")
    with _connected(bootstrap, access, f"share group {group}") as router:
        share_groups.configure(router, group, changes)
    for name, value in changes.items():
        say(f"{name}={value}")


def _delays(text: str) -> str:
    if text == "none":
        return ""
    if text.startswith("exponential:"):
        return text
    return ",".join(str(duration_ms(part.strip())) for part in text.split(","))


@app.command("reset-offsets")
def reset_offsets(
    group: Group,
    topic: Annotated[list[str] | None, typer.Option(help="Only this topic. Repeatable.")] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_offset: Annotated[int | None, typer.Option(help="To this offset.", min=0)] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Let a group without members begin elsewhere. What it has done since is forgotten.

    Example: tidemill share reset-offsets mailers --topic orders --to-earliest --yes
    """
    from tidemill.client.kafka import share_groups

    if sum((to_earliest, to_latest, to_offset is not None)) != 1:
        raise WrongUse("give one of --to-earliest, --to-latest, --to-offset")
    with _connected(bootstrap, access, f"share group {group}") as router:
        found = share_groups.describe(router, group)
        places = [each.place for each in found.places if not topic or each.place.topic in topic]
        targets = _targets(bootstrap, access, places, to_offset, is_first=to_earliest)
        confirm(f"reset {len(targets)} partitions of {group}?", yes=yes)
        if targets:
            share_groups.reset(router, group, targets)
    known = {each.place: each.start_offset for each in found.places}
    rows = [
        {"topic": place.topic, "partition": place.partition, "from": known[place], "to": offset}
        for place, offset in sorted(targets.items())
    ]
    show(rows, ("topic", "partition", "from", "to"), as_json=as_json, empty="nothing to reset")


def _targets(
    bootstrap: str | None, access: Any, places: list["TopicPartition"], to_offset: int | None, *, is_first: bool
) -> dict["TopicPartition", int]:
    from tidemill.client.kafka import EARLIEST, LATEST, KafkaClient

    if not places:
        return {}
    broker = broker_at(bootstrap, access)
    with KafkaClient({**broker.options, "bootstrap.servers": broker.servers}) as client:
        first = client.list_offsets(dict.fromkeys(places, EARLIEST))
        last = client.list_offsets(dict.fromkeys(places, LATEST))
    if to_offset is None:
        return {place: each.offset for place, each in (first if is_first else last).items()}
    return {place: min(max(to_offset, first[place].offset), last[place].offset) for place in places}


@app.command()
def delete(group: Group, yes: Yes = False, bootstrap: Bootstrap = None, access: Client = None) -> None:
    """Delete a group without members, and what it has done. Its settings stay.

    Example: tidemill share delete mailers --yes
    """
    from tidemill.client.kafka import share_groups

    confirm(f"delete share group {group}?", yes=yes)
    with _connected(bootstrap, access, f"share group {group}") as router:
        share_groups.describe(router, group)
        share_groups.delete(router, group)
    say(f"deleted {group}")
