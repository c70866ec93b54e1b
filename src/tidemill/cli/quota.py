"""`tidemill quota`: limits what users, client ids and addresses use. Works with any Kafka broker from 2.6 on."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.connection import Bootstrap, Client, broker_at, failing, reach
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json
from tidemill.cli.output import hint, remark, say, show, show_document, show_json

if TYPE_CHECKING:
    from tidemill.client.kafka import KafkaClient
    from tidemill.client.kafka.quotas import DescribedQuotas, QuotaOwner
    from tidemill.security.core.quotas import QuotaEntity
    from tidemill.wire.http.security import AppliedQuotas, QuotaPage

app = typer.Typer(help="Set, list and remove quotas.", no_args_is_help=True)

COLUMNS = ("for", "quota", "value")
APPLIED_COLUMNS = ("quota", "value", "from")

User = Annotated[str | None, typer.Option("--user", help="For this user.")]
DefaultUser = Annotated[bool, typer.Option("--default-user", help="For each user who has no quota of their own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", help="For clients with this client.id.")]
DefaultClientId = Annotated[
    bool, typer.Option("--default-client-id", help="For each client.id that has no quota of its own.")
]
Ip = Annotated[str | None, typer.Option("--ip", help="For connections from this address.")]
DefaultIp = Annotated[bool, typer.Option("--default-ip", help="For each address that has no quota of its own.")]


@app.command("set")
def set_(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    producer_byte_rate: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Bytes that are produced in a second: 1048576, 512k, 10m.")
    ] = None,
    consumer_byte_rate: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Bytes that are fetched in a second: 1048576, 512k, 10m.")
    ] = None,
    request_percentage: Annotated[
        float | None, typer.Option(help="Share of the broker's time: 50 is half of one processor.")
    ] = None,
    controller_mutation_rate: Annotated[
        float | None, typer.Option(help="Partitions that are created or deleted in a second.")
    ] = None,
    connection_creation_rate: Annotated[
        int | None, typer.Option(help="Connections that are opened in a second. For addresses only.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the change and make none.")] = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Set quotas of users, client ids, both, or addresses. Each broker applies them for itself, at once.

    Example: tidemill quota set --user alice --producer-byte-rate 10m --consumer-byte-rate 20m

    Example: tidemill quota set --user alice --default-client-id --request-percentage 25

    Example: tidemill quota set --default-ip --connection-creation-rate 20
    """
    owner = _owner(user, default_user, client_id, default_client_id, ip, default_ip)
    given = {
        "producer_byte_rate": _bytes("--producer-byte-rate", producer_byte_rate),
        "consumer_byte_rate": _bytes("--consumer-byte-rate", consumer_byte_rate),
        "request_percentage": request_percentage,
        "controller_mutation_rate": controller_mutation_rate,
        "connection_creation_rate": connection_creation_rate,
    }
    wanted = {key: float(value) for key, value in given.items() if value is not None}
    if not wanted:
        raise WrongUse("give at least one quota, for example --producer-byte-rate 10m")
    _check(owner, wanted)
    with _connected(bootstrap, access) as client:
        _alter(client, owner, wanted, dry_run=dry_run)
    _show_changed(owner, wanted, as_json=as_json)
    if dry_run:
        remark("nothing was changed; leave out --dry-run to set the quotas")
    else:
        hint("see: tidemill quota list")


@app.command("list")
def list_(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    applied: Annotated[
        bool, typer.Option("--applied", help="The quotas that apply to a client of this user, client id or address.")
    ] = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """List quotas: all of them, or those that name this user, client id or address.

    Example: tidemill quota list

    Example: tidemill quota list --user alice --client-id mailer --applied
    """
    named = any((user, default_user, client_id, default_client_id, ip, default_ip))
    if applied and (not named or default_user or default_client_id or default_ip):
        raise WrongUse("--applied needs the names of one client: --user and --client-id, or --ip")
    owner = _owner(user, default_user, client_id, default_client_id, ip, default_ip) if named else None
    with _connected(bootstrap, access) as client, failing("list quotas"):
        found = client.quotas()
    if applied and owner is not None:
        from tidemill.security.core.quotas import parse_entity

        quotas = _applied(found, dict(owner.entries))
        if as_json:
            show_document(quotas)
            return
        applying = [
            {"quota": each.quota, "value": _number(each.value), "from": str(parse_entity(list(each.entity.items())))}
            for each in quotas.quotas
        ]
        show(applying, APPLIED_COLUMNS, as_json=False, empty=f"no quota applies to {owner}")
        return
    wanted = set(owner.entries) if owner is not None else set()
    chosen = sorted((each for each in found if wanted <= set(each.owner)), key=lambda each: _text(each.owner))
    if as_json:
        show_document(_page(chosen))
        return
    rows = [row for each in chosen for row in _rows(each.owner, each.quotas)]
    show(rows, COLUMNS, as_json=False, empty="there are no such quotas" if wanted else "there are no quotas yet")


@app.command()
def remove(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    quota: Annotated[
        list[str] | None,
        typer.Option("--quota", metavar="NAME", help="Only this quota: producer_byte_rate, ... Repeatable."),
    ] = None,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Remove the quotas of users, client ids or addresses.

    Example: tidemill quota remove --user alice

    Example: tidemill quota remove --default-client-id --quota request_percentage
    """
    owner = _owner(user, default_user, client_id, default_client_id, ip, default_ip)
    with _connected(bootstrap, access) as client:
        with failing("list quotas"):
            known = next((each.quotas for each in client.quotas() if set(each.owner) == set(owner.entries)), {})
        names = dict.fromkeys((each.replace("-", "_") for each in quota), None) if quota else dict.fromkeys(known, None)
        missing = [name for name in names if name not in known]
        if missing or not names:
            what = f"quota {missing[0][:60]}" if missing else "quota"
            raise CommandFailed(f"{owner} has no {what}; see: tidemill quota list")
        _alter(client, owner, names, dry_run=False)
    _show_changed(owner, {name: known[name] for name in names}, as_json=as_json, removed=True)


def _owner(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    ip: str | None,
    default_ip: bool,
) -> "QuotaEntity":
    from tidemill.model.errors import InvalidRequest
    from tidemill.security.core.quotas import CLIENT_ID, IP, USER, parse_entity

    given = ((USER, user, default_user), (CLIENT_ID, client_id, default_client_id), (IP, ip, default_ip))
    for kind, name, is_default in given:
        if name is not None and is_default:
            raise WrongUse(f"give either --{kind} or --default-{kind}")
    entries = [(kind, name) for kind, name, is_default in given if name is not None or is_default]
    if not entries:
        raise WrongUse("name whom the quota is for: --user, --client-id, --ip, or a default such as --default-user")
    try:
        return parse_entity(entries)
    except InvalidRequest as error:
        raise WrongUse(str(error)) from None


def _bytes(option: str, text: str | None) -> int | None:
    from tidemill.pipelines.errors import WrongOption
    from tidemill.pipelines.source.core.sizes import parse_bytes

    if text is None:
        return None
    try:
        return parse_bytes(option, text)
    except WrongOption as error:
        raise WrongUse(str(error)) from None


def _check(owner: "QuotaEntity", wanted: Mapping[str, float]) -> None:
    from tidemill.model.errors import InvalidRequest
    from tidemill.security.core.quotas import parse_value

    try:
        for key, value in wanted.items():
            parse_value(owner, key, value)
    except InvalidRequest as error:
        raise WrongUse(str(error)) from None


def _connected(bootstrap: str | None, access: list[str] | None) -> "KafkaClient":
    from tidemill.client.kafka import KafkaClient

    broker = broker_at(bootstrap, access)
    reach(broker)
    return KafkaClient(broker.options)


def _alter(client: "KafkaClient", owner: "QuotaEntity", changes: Mapping[str, float | None], *, dry_run: bool) -> None:
    from tidemill.client.kafka.quotas import QuotaChange

    with failing("alter quotas"):
        [error] = client.alter_quotas([QuotaChange(owner.entries, changes)], dry_run=dry_run)
        if error is not None:
            raise error


def _show_changed(owner: "QuotaEntity", quotas: Mapping[str, float], *, as_json: bool, removed: bool = False) -> None:
    if as_json:
        show_json({"entity": dict(owner.entries), "removed" if removed else "quotas": dict(quotas)})
        return
    for row in _rows(owner.entries, quotas):
        say(f"removed {row['quota']} of {row['for']}" if removed else f"{row['for']}: {row['quota']}={row['value']}")


def _rows(owner: "QuotaOwner", quotas: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"for": _text(owner), "quota": key, "value": _number(value)} for key, value in sorted(quotas.items())]


def _text(owner: "QuotaOwner") -> str:
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in sorted(owner)[::-1])


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _page(found: "Sequence[DescribedQuotas]") -> "QuotaPage":
    """The quotas as the JSON API lists them."""
    from tidemill.wire.http.security import QuotaPage, QuotaRow

    rows = [QuotaRow(entity=dict(each.owner), quotas=dict(each.quotas)) for each in found]
    return QuotaPage(entities=rows, total=len(rows))


def _applied(found: "Sequence[DescribedQuotas]", names: Mapping[str, str | None]) -> "AppliedQuotas":
    """The quota of each kind that a client has, and whose it is."""
    from tidemill.security.core.quotas import CLIENT_ID, IP, KINDS, USER, applying, parse_entity
    from tidemill.wire.http.security import AppliedQuotaRow, AppliedQuotas

    known = {
        parse_entity(each.owner): {KINDS[key]: value for key, value in each.quotas.items() if key in KINDS}
        for each in found
    }
    rows = [
        AppliedQuotaRow(quota=kind.value, value=value, entity=dict(entity.entries))
        for kind, (entity, value) in applying(known, names.get(USER), names.get(CLIENT_ID), names.get(IP)).items()
    ]
    return AppliedQuotas(quotas=rows)
