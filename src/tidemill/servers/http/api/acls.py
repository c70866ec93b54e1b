"""ACLs in the JSON API: list, grant, revoke. The Kafka server makes the changes, for the client.

A change by which the client itself loses rights on the cluster is refused unless the request accepts the loss.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tidemill.client.kafka.acls import AclFields
from tidemill.client.kafka.client import KafkaClient
from tidemill.model.errors import InvalidRequest, SecurityDisabled
from tidemill.security.acls import Acls
from tidemill.security.core.acl_selection import (
    AclSelection,
    InvalidSelection,
    parse_hosts,
    parse_operations,
    parse_principals,
    parse_resources,
    word,
)
from tidemill.security.core.acls import EVERY_USER, AclBinding, AclFilter, parse_binding
from tidemill.security.core.principal import USER
from tidemill.security.core.resources import Operation, PatternType, Permission, ResourceType
from tidemill.security.security import Security
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.wire.http.security import (
    CHANGED_ACLS_MAX,
    AclGrantInput,
    AclPage,
    AclQuery,
    AclRevocationInput,
    AclRow,
    AclSelectionInput,
    ChangedAcls,
    NamedAcl,
)

NO_ACLS = (
    "this broker checks no ACLs, because no listener requires a login; add a listener that does, or set authorizer=acl"
)
CONSUMER_ALONE = "without a group they may read, but not join a group or commit offsets"
NOTHING_SELECTED = "there is no such ACL; list the ACLs to see which exist"
WORDS = {each: word(each) for each in ResourceType}
RESOURCES = {word(each): each for each in ResourceType}
OPERATIONS = {word(each): each for each in Operation}


def acls_of(security: Security) -> Acls:
    """The ACLs of a broker that checks them."""
    if security.acls is None:
        raise SecurityDisabled(NO_ACLS)
    return security.acls


def acl_row(binding: AclBinding) -> AclRow:
    """An ACL as a document."""
    return AclRow(
        principal=binding.principal,
        permission=word(binding.permission),
        operation=word(binding.operation),
        resource=word(binding.resource_type),
        name=binding.name,
        pattern=word(binding.pattern),
        host=binding.host,
    )


async def list_acls(context: ApiContext, call: ApiCall[AclQuery, None]) -> AclPage:
    """A page of ACLs."""
    acls, query = acls_of(context.broker.security), call.query
    return await asyncio.to_thread(_page, acls, query)


def _page(acls: Acls, query: AclQuery) -> AclPage:
    key = _by_resource if query.sort == "resource" else _by_principal
    found = sorted(_selected(acls, query), key=key, reverse=query.descending)
    start = (query.page - 1) * query.rows
    shown = found[start : start + query.rows]
    counts = Counter(key(each)[0] for each in found)
    return AclPage(
        acls=[acl_row(each) for each in shown],
        total=len(found),
        groups={name: counts[name] for name in dict.fromkeys(key(each)[0] for each in shown)},
    )


def _by_principal(binding: AclBinding) -> tuple[str, AclBinding]:
    return binding.principal, binding


def _by_resource(binding: AclBinding) -> tuple[str, AclBinding]:
    return _resource_text(WORDS[binding.resource_type], binding.name, binding.pattern is PatternType.PREFIXED), binding


def resource_of(row: AclRow) -> str:
    """The resource of an ACL in one line, as pages group ACLs."""
    return _resource_text(row.resource, row.name, row.pattern == "prefixed")


def _resource_text(kind: str, name: str, is_prefix: bool) -> str:
    return f"{kind} {name}{'…' if is_prefix else ''}"


def _selected(acls: Acls, query: AclQuery) -> Iterator[AclBinding]:
    kind = ResourceType[query.resource.upper().replace("-", "_")] if query.resource else ResourceType.ANY
    permission = Permission[query.permission.upper()] if query.permission else Permission.ANY
    name = query.name or None
    wanted = AclFilter(kind, name, PatternType.MATCH if name else PatternType.ANY, permission=permission)
    principals = {*parse_principals([query.principal]), EVERY_USER} if query.principal else None
    for binding in acls.table.find(wanted):
        if principals is not None and binding.principal not in principals:
            continue
        if query.search in binding.principal or query.search in binding.name:
            yield binding


async def grant_acls(context: ApiContext, call: ApiCall[None, AclGrantInput]) -> ChangedAcls:
    """Create ACLs, or show which."""
    body, security = call.body, context.broker.security
    acls_of(security)
    with _described():
        selection = _selection(body)
        _check_size(selection)
        bindings = selection.bindings()
    warnings = [CONSUMER_ALONE] if body.consumer and body.topics and not body.groups else []
    unknown = [] if body.deny else [each for each in selection.principals if not _is_known(security, each)]
    if unknown:
        warnings.append(
            f"no user with a password has the name {', '.join(each.partition(':')[2] for each in unknown[:5])}; "
            "that is right for a user of a certificate or a token, else add the user"
        )
    loses = await _loss(context, call, added=bindings)
    if not body.dry_run:
        await context.as_client(call.rights, lambda client: _created(client, bindings))
    return _changed(bindings, body, warnings, loses)


def _created(client: KafkaClient, bindings: Sequence[AclBinding]) -> None:
    raise_first(client.create_acls([AclFields(*each) for each in bindings]))


async def revoke_acls(context: ApiContext, call: ApiCall[None, AclRevocationInput]) -> ChangedAcls:
    """Delete ACLs, or show which. What a description leaves out selects everything."""
    body, security = call.body, context.broker.security
    acls = acls_of(security)
    with _described():
        found = _named(body) if body.acls else await asyncio.to_thread(_to_revoke, acls, body)
    table = acls.table
    found = [each for each in dict.fromkeys(found) if each in table]
    if not found:
        raise ApiProblem(404, NOTHING_SELECTED)
    if len(found) > CHANGED_ACLS_MAX:
        raise ApiProblem(400, f"{len(found)} ACLs are selected, and one change may have {CHANGED_ACLS_MAX}; name less")
    loses = await _loss(context, call, removed=found)
    if not body.dry_run:
        await context.as_client(call.rights, lambda client: _deleted(client, found))
    return _changed(found, body, [], loses)


def _deleted(client: KafkaClient, bindings: Sequence[AclBinding]) -> None:
    raise_first(client.delete_acls([AclFields(*each) for each in bindings]))


def _named(body: AclRevocationInput) -> list[AclBinding]:
    if _describes(body):
        raise ApiProblem(400, "give either exact ACLs or a description, not both")
    return [_binding(each) for each in body.acls]


def _binding(row: NamedAcl) -> AclBinding:
    kind, operation = RESOURCES.get(row.resource), OPERATIONS.get(row.operation)
    if kind is None or operation is None:
        raise ApiProblem(400, "an ACL has a resource or an operation that is not known; copy it from the list of ACLs")
    pattern, permission = PatternType[row.pattern.upper()], Permission[row.permission.upper()]
    return parse_binding(kind, row.name, pattern, row.principal, row.host, operation, permission)


def _to_revoke(acls: Acls, body: AclRevocationInput) -> list[AclBinding]:
    selection = _selection(body)
    if body.all:
        if not body.principals or body != AclRevocationInput(
            principals=body.principals, all=True, dry_run=body.dry_run, accept_loss=body.accept_loss
        ):
            raise ApiProblem(400, "all deletes every ACL of the named principals; leave out the rest")
        selection = selection._replace(permission=Permission.ANY)
    elif not selection.resources:
        raise ApiProblem(400, "name what to revoke: topics, groups, transactional ids or the cluster; or all")
    return [each for each in acls.table if selection.selects(each)]


def _describes(body: AclRevocationInput) -> bool:
    return body != AclRevocationInput(acls=body.acls, dry_run=body.dry_run, accept_loss=body.accept_loss)


def _selection(body: AclSelectionInput) -> AclSelection:
    return AclSelection(
        parse_principals(body.principals),
        parse_resources(body.topics, body.groups, body.transactional_ids, cluster=body.cluster, prefix=body.prefix),
        parse_operations(body.operations),
        body.producer,
        body.consumer,
        parse_hosts(body.hosts),
        Permission.DENY if body.deny else Permission.ALLOW,
    )


def _check_size(selection: AclSelection) -> None:
    if not selection.principals:
        raise ApiProblem(400, "name the users, or * for every user")
    operations = sum(len(selection.operations_on(each.kind)) for each in selection.resources)
    count = len(selection.principals) * operations * max(1, len(selection.hosts))
    if count > CHANGED_ACLS_MAX:
        raise ApiProblem(
            400, f"these are {count} ACLs, and one change may have {CHANGED_ACLS_MAX}; use a prefix, or fewer names"
        )


def _is_known(security: Security, principal: str) -> bool:
    kind, _, name = principal.partition(":")
    return principal == EVERY_USER or kind != USER or security.users.find(name) is not None


async def _loss(
    context: ApiContext,
    call: ApiCall[None, AclGrantInput] | ApiCall[None, AclRevocationInput],
    *,
    added: Iterable[AclBinding] = (),
    removed: Iterable[AclBinding] = (),
) -> list[str]:
    """The operations on the cluster that the client itself loses; ApiProblem if it has not accepted that."""
    rights, authorizer, body = call.rights, context.broker.security.authorizer, call.body
    bits = await asyncio.to_thread(
        authorizer.lost_operations, rights.principal, rights.host, list(added), list(removed)
    )
    loses = [word(each) for each in Operation if bits >> each & 1]
    if loses and not (body.dry_run or body.accept_loss):
        raise ApiProblem(
            409,
            f"by this change you would lose {', '.join(loses)} on the cluster yourself; to make it anyway, repeat the "
            "request with accept_loss",
        )
    return loses


def _changed(
    bindings: Iterable[AclBinding], body: AclSelectionInput, warnings: list[str], loses: list[str]
) -> ChangedAcls:
    return ChangedAcls(acls=[acl_row(each) for each in bindings], dry_run=body.dry_run, warnings=warnings, loses=loses)


def raise_first(errors: Iterable[Exception | None]) -> None:
    """Raise the first error of several changes."""
    failed = next((each for each in errors if each is not None), None)
    if failed is not None:
        raise failed


@contextmanager
def _described() -> Iterator[None]:
    try:
        yield
    except (InvalidSelection, InvalidRequest) as error:
        raise ApiProblem(400, str(error)) from None


HANDLERS: dict[str, ApiHandler] = {
    "GET /api/v1/acls": list_acls,
    "POST /api/v1/acls": grant_acls,
    "POST /api/v1/acls/revocations": revoke_acls,
}
