"""`tidemill acl`: allows and denies what users do, with the ACLs of Kafka's protocol. Works with any Kafka broker."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tidemill.cli.connection import Bootstrap, Client, broker_at, failing, reach
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json, Yes
from tidemill.cli.output import Row, confirm, remark, say, show, show_document

if TYPE_CHECKING:
    from tidemill.client.kafka import KafkaClient
    from tidemill.client.kafka.acls import AclFields
    from tidemill.security.core.acl_selection import AclSelection
    from tidemill.security.core.acls import AclBinding
    from tidemill.wire.http.security import AclPage

E = TypeVar("E", bound=IntEnum)

app = typer.Typer(help="Grant, revoke and list rights.", no_args_is_help=True)

COLUMNS = ("principal", "permission", "operation", "resource", "name", "pattern", "host")

Topic = Annotated[list[str] | None, typer.Option("--topic", help="A topic, or '*' for every topic. Repeatable.")]
Timeline = Annotated[list[str] | None, typer.Option("--timeline", help="A timeline: the same as --topic. Repeatable.")]
Group = Annotated[list[str] | None, typer.Option("--group", help="A consumer group, or '*'. Repeatable.")]
TransactionalId = Annotated[
    list[str] | None, typer.Option("--transactional-id", help="A transactional id, or '*'. Repeatable.")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster: brokers, settings, users, ACLs.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="The given names are the beginnings of names.")]
OperationNames = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        metavar="NAME[,NAME]",
        help="read, write, create, delete, alter, describe, describe-configs, alter-configs, cluster-action, "
        "idempotent-write, two-phase-commit or all. Repeatable.",
    ),
]
Producer = Annotated[bool, typer.Option("--producer", help="What a producer needs: write, describe, create.")]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="What a consumer needs: read and describe; with --group, read the group.")
]
Host = Annotated[list[str] | None, typer.Option("--host", help="IP address of the client. Repeatable.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow. DENY wins over ALLOW.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes and make none.")]


@app.command()
def grant(
    users: Annotated[list[str], typer.Argument(metavar="USER...", help="Users, or '*' for every user.")],
    topic: Topic = None,
    timeline: Timeline = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    operation: OperationNames = None,
    producer: Producer = False,
    consumer: Consumer = False,
    host: Host = None,
    deny: Deny = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Allow users an operation, or deny it with --deny.

    Example: tidemill acl grant alice --producer --topic orders

    Example: tidemill acl grant bob --consumer --topic orders --group mailer

    Example: tidemill acl grant ops --operation describe,alter --topic billing. --prefix --host 10.0.0.7
    """
    with _described():
        selection = _selection(
            users, topic, timeline, group, transactional_id, cluster, prefix, operation, producer, consumer, host, deny
        )
        bindings = selection.bindings()
    if not dry_run:
        with _connected(bootstrap, access) as client, failing("grant"):
            _raise_first(client.create_acls([_fields(each) for each in bindings]))
            without_password = [] if deny else _without_password(client, users)
    show([_row(each) for each in bindings], COLUMNS, as_json=as_json)
    if consumer and topic and not group:
        remark("without --group they may read, but not join a group or commit offsets")
    if dry_run:
        remark("nothing was changed; leave out --dry-run to grant")
    elif without_password:
        remark(
            f"no user with a password has the name {', '.join(without_password)}; if no certificate or token has it: "
            f"tidemill user add {without_password[0]}"
        )


@app.command()
def revoke(
    users: Annotated[list[str] | None, typer.Argument(metavar="USER...", help="Users. Default: every user.")] = None,
    topic: Topic = None,
    timeline: Timeline = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    operation: OperationNames = None,
    producer: Producer = False,
    consumer: Consumer = False,
    host: Host = None,
    deny: Deny = False,
    all_: Annotated[bool, typer.Option("--all", help="Every ACL of these users, ALLOW and DENY.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Delete ACLs: those that allow, or with --deny those that deny. An option that is left out matches everything.

    Asks before it deletes more than one.

    Example: tidemill acl revoke alice --topic orders --operation write

    Example: tidemill acl revoke alice --all --dry-run
    """
    from tidemill.security.core.resources import Permission

    with _described():
        selection = _selection(
            users or [],
            topic,
            timeline,
            group,
            transactional_id,
            cluster,
            prefix,
            operation,
            producer,
            consumer,
            host,
            deny,
        )
    if all_:
        if not users or selection.resources or selection.operations or producer or consumer or deny:
            raise WrongUse(
                "--all deletes every ACL of the named users; leave out the other options, or leave out --all"
            )
        selection = selection._replace(permission=Permission.ANY)
    elif not selection.resources:
        raise WrongUse("name what to revoke: --topic, --timeline, --group, --transactional-id or --cluster, or --all")
    with _connected(bootstrap, access) as client:
        found = [each for each in _existing(client, selection.principals) if selection.selects(each)]
        if not found:
            raise CommandFailed(f"there is no such ACL; see: tidemill acl list {' '.join(users or [])}".rstrip())
        if len(found) > 1 and not (yes or dry_run):
            show([_row(each) for each in found], COLUMNS, as_json=False)
            confirm(f"delete these {len(found)} ACLs?", yes=False)
        if not dry_run:
            with failing("revoke"):
                _raise_first(client.delete_acls([_fields(each) for each in found]))
    if as_json or yes or dry_run or len(found) == 1:
        show([_row(each) for each in found], COLUMNS, as_json=as_json)
    if not as_json:
        count = f"{len(found)} ACL{'s' if len(found) > 1 else ''}"
        say(f"{count} would be revoked" if dry_run else f"{count} revoked")


@app.command("list")
def list_(
    users: Annotated[list[str] | None, typer.Argument(metavar="USER...", help="Users. Default: every user.")] = None,
    topic: Topic = None,
    timeline: Timeline = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """List ACLs. For a user or a name, list all that apply to it: also prefixes, '*' and ACLs for every user.

    Example: tidemill acl list

    Example: tidemill acl list alice --topic orders
    """
    from tidemill.client.kafka.acls import AclFilterFields
    from tidemill.security.core.acl_selection import parse_principals, parse_resources
    from tidemill.security.core.acls import EVERY_USER
    from tidemill.security.core.resources import PatternType

    topics = [*(topic or []), *(timeline or [])]
    with _described():
        resources = parse_resources(topics, group or [], transactional_id or [], cluster=cluster, prefix=False)
        principals = {*parse_principals(users), EVERY_USER} if users else set()
    wanted = [AclFilterFields(each.kind, each.name, PatternType.MATCH) for each in resources] or [AclFilterFields()]
    with _connected(bootstrap, access) as client, failing("list ACLs"):
        found = {each for selected in wanted for each in client.acls(selected)}
    shown = [_row(each) for each in sorted(found) if not principals or each.principal in principals]
    if as_json:
        show_document(_page(shown))
    else:
        show(shown, COLUMNS, as_json=False, empty="there are no such ACLs")


def _page(rows: Sequence[Row]) -> "AclPage":
    """The ACLs as the JSON API lists them."""
    from tidemill.wire.http.security import AclPage, AclRow

    counts = Counter(row["principal"] for row in rows)
    return AclPage(acls=[AclRow(**row) for row in rows], total=len(rows), groups=dict(counts))


def _selection(
    users: Sequence[str],
    topic: list[str] | None,
    timeline: list[str] | None,
    group: list[str] | None,
    transactional_id: list[str] | None,
    cluster: bool,
    prefix: bool,
    operation: list[str] | None,
    producer: bool,
    consumer: bool,
    host: list[str] | None,
    deny: bool,
) -> "AclSelection":
    from tidemill.security.core.acl_selection import (
        AclSelection,
        parse_hosts,
        parse_operations,
        parse_principals,
        parse_resources,
    )
    from tidemill.security.core.resources import Permission

    topics = [*(topic or []), *(timeline or [])]
    return AclSelection(
        parse_principals(users),
        parse_resources(topics, group or [], transactional_id or [], cluster=cluster, prefix=prefix),
        parse_operations(operation or []),
        producer,
        consumer,
        parse_hosts(host or []),
        Permission.DENY if deny else Permission.ALLOW,
    )


@contextmanager
def _described() -> Iterator[None]:
    """Turn what is missing in a description into one line with the options of these commands."""
    from tidemill.model.errors import InvalidRequest
    from tidemill.security.core.acl_selection import InvalidSelection, SelectionProblem

    lines = {
        SelectionProblem.NO_RESOURCE: "name what the ACL is about: --topic, --timeline, --group, --transactional-id or "
        "--cluster",
        SelectionProblem.NO_OPERATION: "give --operation, such as --operation read,write, or --producer or --consumer",
        SelectionProblem.CONSUMER_WITHOUT_TOPIC: "--consumer needs --topic, and --group for a consumer group; or use "
        "--timeline",
        SelectionProblem.PRODUCER_WITHOUT_TOPIC: "--producer needs --topic or --timeline",
        SelectionProblem.PREFIX_OF_EVERYTHING: "with --prefix, '*' means names that begin with *; leave out --prefix "
        "to mean every name",
        SelectionProblem.DENIED_PRESET: "--deny needs --operation; --producer and --consumer are for grants",
    }
    try:
        yield
    except InvalidSelection as error:
        raise WrongUse(str(error) if error.problem is None else lines.get(error.problem, str(error))) from None
    except InvalidRequest as error:
        raise WrongUse(str(error)) from None


def _without_password(client: "KafkaClient", users: Sequence[str]) -> list[str]:
    """The users that cannot log in with a password; none if the client may not list users, or the broker has none."""
    from tidemill.client.kafka import ClientError
    from tidemill.model.errors import KafkaError

    try:
        known = {each.name for each in client.users()}
    except (KafkaError, ClientError):
        return []
    return [name for name in users if known and name not in known and name != "*"]


def _connected(bootstrap: str | None, access: list[str] | None) -> "KafkaClient":
    from tidemill.client.kafka import KafkaClient

    broker = broker_at(bootstrap, access)
    reach(broker)
    return KafkaClient(broker.options)


def _existing(client: "KafkaClient", principals: Iterable[str]) -> list["AclBinding"]:
    """The ACLs of these principals, or of all, without those of a newer Kafka that have unknown numbers."""
    from tidemill.client.kafka.acls import AclFilterFields
    from tidemill.model.errors import InvalidRequest
    from tidemill.security.core.acls import parse_binding

    wanted = [AclFilterFields(principal=each) for each in principals] or [AclFilterFields()]
    with failing("list ACLs"):
        fields = {each for selected in wanted for each in client.acls(selected)}
    found = []
    for each in sorted(fields):
        try:
            found.append(parse_binding(*each))
        except InvalidRequest:
            continue
    return found


def _raise_first(errors: Sequence[Exception | None]) -> None:
    failed = [each for each in errors if each is not None]
    if failed:
        raise failed[0]


def _fields(binding: "AclBinding") -> "AclFields":
    from tidemill.client.kafka.acls import AclFields

    return AclFields(*binding)


def _row(fields: Any) -> dict[str, Any]:
    """An ACL for a table, from a binding or from plain fields."""
    from tidemill.security.core.resources import Operation, PatternType, Permission, ResourceType

    kind, name, pattern, principal, host, operation, permission = fields
    return {
        "principal": principal,
        "permission": _shown(Permission, permission),
        "operation": _shown(Operation, operation),
        "resource": _shown(ResourceType, kind),
        "name": name,
        "pattern": _shown(PatternType, pattern),
        "host": host,
    }


def _shown(kind: type[E], number: int) -> str:
    from tidemill.security.core.acl_selection import word

    try:
        return word(kind(number))
    except ValueError:
        return f"unknown {number}"
