"""`tidemill group`: lists, describes, resets and deletes consumer groups, with lag in records and seconds."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.connection import (
    TIMEOUT_S,
    Bootstrap,
    Client,
    admin,
    answer,
    broker_at,
    partitions_of,
)
from tidemill.cli.durations import duration_ms, moment_ms
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.group_documents import Place, committed_offsets, group_description, group_page
from tidemill.cli.options import Json, Yes
from tidemill.cli.output import confirm, say, show, show_document, show_json
from tidemill.cli.topic import offsets_of

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]


@app.command("list")
def list_(bootstrap: Bootstrap = None, access: Client = None, as_json: Json = False) -> None:
    """List the groups with their state and protocol.

    Example: tidemill group list
    """
    page = group_page(admin(broker_at(bootstrap, access)))
    if as_json:
        show_document(page)
        return
    rows = [{"group": each.group, "state": each.state.lower(), "protocol": each.type} for each in page.groups]
    show(rows, ("group", "state", "protocol"), as_json=False, empty="there are no groups yet")


@app.command()
def describe(group: Group, bootstrap: Bootstrap = None, access: Client = None, as_json: Json = False) -> None:
    """Show members, assigned partitions, committed offsets and lag.

    The lag counts offsets from the first record that a consumer of committed records can read, as /metrics does. The
    lag in seconds is the age of that record. Both are 0 where only transaction markers, aborted or compacted records
    and open transactions are left.

    Example: tidemill group describe mailer
    """
    broker = broker_at(bootstrap, access)
    client = admin(broker)
    described = group_description(client, broker, group)
    if described is None:
        raise CommandFailed(f"there is no group {group}; see: tidemill group list")
    if as_json:
        show_document(described)
        return
    say(f"{group}: {described.state.lower()}, {described.member_count} members")
    columns = ("topic", "partition", "committed", "end", "lag", "lag_s", "client", "host")
    rows = [{column: getattr(each, column) for column in columns} for each in described.partitions]
    show(rows, columns, as_json=False)


@app.command("reset-offsets")
def reset_offsets(
    group: Group,
    topic: Annotated[
        list[str] | None, typer.Option(help="Only this topic. Repeatable. Default: all topics with commits.")
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="TIME", help="To the first record at or after this time.")
    ] = None,
    to_offset: Annotated[int | None, typer.Option(help="To this offset.", min=0)] = None,
    shift_by: Annotated[int | None, typer.Option(help="Forward by N records, or back by -N.")] = None,
    by_duration: Annotated[str | None, typer.Option(metavar="DURATION", help="Back by this time: 15m, 2h.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes and make none.")] = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Move the committed offsets of a group without members.

    Example: tidemill group reset-offsets mailer --topic orders --to-earliest --dry-run
    """
    choices = [
        to_earliest,
        to_latest,
        to_datetime is not None,
        to_offset is not None,
        shift_by is not None,
        by_duration is not None,
    ]
    if sum(choices) != 1:
        raise WrongUse("give one of --to-earliest, --to-latest, --to-datetime, --to-offset, --shift-by, --by-duration")
    client = admin(broker_at(bootstrap, access))
    committed = {place: each.offset for place, each in committed_offsets(client, group).items()}
    if not committed and not topic:
        raise CommandFailed(f"{group} has no committed offsets; name the topics with --topic")
    places = _places(client, committed, topic)
    wanted = to_offset if to_offset is not None else shift_by
    moment = moment_ms(to_datetime) if to_datetime else None
    if by_duration:
        moment = time.time_ns() // 1_000_000 - duration_ms(by_duration)
    targets = _targets(
        client, places, committed, "earliest" if to_earliest else "latest", wanted, shift_by is not None, moment
    )
    rows = [
        {"topic": name, "partition": partition, "from": committed.get((name, partition)), "to": offset}
        for (name, partition), offset in sorted(targets.items())
    ]
    if not dry_run:
        _commit(client, group, targets)
    show(rows, ("topic", "partition", "from", "to"), as_json=as_json)


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Groups to delete with their offsets.")],
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Delete groups without members, with their committed offsets.

    Example: tidemill group delete mailer --yes
    """
    client = admin(broker_at(bootstrap, access))
    confirm(f"delete {', '.join(groups)} and the offsets they committed?", yes=yes)
    for group, future in client.delete_consumer_groups(groups, request_timeout=TIMEOUT_S).items():
        answer(future, f"delete {group}")
        if not as_json:
            say(f"deleted {group}")
    if as_json:
        show_json({"deleted": groups})


def _places(client: "AdminClient", committed: dict[Place, int], topics: list[str] | None) -> list[Place]:
    if topics is None:
        return sorted(committed)
    return [(topic, partition) for topic in topics for partition in partitions_of(client, topic)]


def _targets(
    client: "AdminClient",
    places: list[Place],
    committed: dict[Place, int],
    end: str,
    wanted: int | None,
    shift: bool,
    moment: int | None,
) -> dict[Place, int]:
    """The new offset of each partition, always within its log."""
    targets: dict[Place, int] = {}
    for topic in {topic for topic, _ in places}:
        partitions = [partition for name, partition in places if name == topic]
        lows, highs = offsets_of(client, topic, partitions)
        at_time = _offsets_at(client, topic, partitions, moment) if moment is not None else {}
        for partition in partitions:
            low, high = lows[partition], highs[partition]
            if moment is not None:
                target = at_time[partition] if at_time[partition] >= 0 else high
            elif wanted is not None:
                target = wanted + (committed.get((topic, partition), low) if shift else 0)
            else:
                target = low if end == "earliest" else high
            targets[topic, partition] = min(max(target, low), high)
    return targets


def _offsets_at(client: "AdminClient", topic: str, partitions: list[int], moment: int) -> dict[int, int]:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    asked = {TopicPartition(topic, partition): OffsetSpec.for_timestamp(moment) for partition in partitions}
    return {
        each.partition: answer(future, f"offsets of {topic}").offset
        for each, future in client.list_offsets(asked).items()
    }


def _commit(client: "AdminClient", group: str, targets: dict[Place, int]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    if not targets:
        return
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in targets.items()]
    change = ConsumerGroupTopicPartitions(group, offsets)
    for each in answer(client.alter_consumer_group_offsets([change])[group], f"reset {group}").topic_partitions:
        if each.error is not None:
            raise CommandFailed(f"reset {group}: {each.topic}-{each.partition}: {each.error.str()}")
