"""Who the client is, how the cluster authenticates its clients, and what a principal may do, in the JSON API."""

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from tidemill.security.client_rights import ClientRights
from tidemill.security.core.acl_selection import InvalidSelection, parse_principals, word
from tidemill.security.core.acls import EVERY_USER, SUPPORTED, WILDCARD
from tidemill.security.core.effective_rights import RightsExplanation, explain_rights
from tidemill.security.core.principal import ANONYMOUS, USER, Principal, parse_principal
from tidemill.security.core.principal import user as user_principal
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api import acls, quotas, users
from tidemill.servers.http.api.acls import RESOURCES, acl_row
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.broker_reports import REPORT
from tidemill.servers.http.api.quotas import EVERY_ENTITY
from tidemill.wire.http.cluster import NoQuestion
from tidemill.wire.http.security import (
    ClientIdentity,
    EffectiveRights,
    OperationRow,
    RightsQuery,
    SecurityStatus,
    ServersOfBroker,
)


async def describe_client(context: ApiContext, call: ApiCall[None, None]) -> ClientIdentity:
    """The client that asks."""
    return identity_of(context, call.rights)


def identity_of(context: ApiContext, rights: ClientRights) -> ClientIdentity:
    """A client and what it may do with the cluster."""
    operations = sorted(SUPPORTED[ResourceType.CLUSTER])
    return ClientIdentity(
        principal=str(rights.principal),
        host=rights.host,
        is_anonymous=rights.principal is ANONYMOUS,
        is_super=rights.are_checked and context.broker.security.authorizer.is_super(rights.principal),
        checks_acls=rights.are_checked,
        cluster_operations=[word(each) for each in operations if may(rights, each)],
        is_readonly=context.is_readonly,
    )


def may(rights: ClientRights, operation: Operation) -> bool:
    """Whether a client may do this with the cluster."""
    return rights.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)


async def describe_security(context: ApiContext, call: ApiCall[None, None]) -> SecurityStatus:
    """How the cluster authenticates its clients, and how much it knows of them."""
    broker, rights = context.broker, call.rights
    security = broker.security
    gathered = await context.parts.gather(REPORT, rights, NoQuestion())
    brokers = [
        ServersOfBroker(broker=node_id, allows_anonymous=report.is_anonymous, servers=report.servers)
        for node_id, report in sorted(gathered.parts.items())
    ]
    names = security.users.names()
    shows_quotas = may(rights, Operation.DESCRIBE_CONFIGS)
    return SecurityStatus(
        checks_acls=rights.are_checked,
        requires_login=any(each.authenticates for one in brokers for each in one.servers),
        without_acls="allowed" if broker.settings.security.allow_everyone_if_no_acl_found else "denied",
        acls_are_complete=security.acls is None or security.acls.table.is_complete,
        users=len(names),
        super_users=sum(security.authorizer.is_super(user_principal(name)) for name in names),
        acls=None if security.acls is None else len(security.acls.table),
        quotas=len(security.quotas.find(EVERY_ENTITY)) if shows_quotas else None,
        brokers=brokers,
        unreachable_brokers=gathered.unreachable,
    )


async def explain(context: ApiContext, call: ApiCall[RightsQuery, None]) -> EffectiveRights:
    """What a principal may do on a resource. A client may always ask about itself."""
    query, rights, security = call.query, call.rights, context.broker.security
    principal = _principal(query.principal) if query.principal else rights.principal
    may_list = may(rights, Operation.DESCRIBE)
    if principal != rights.principal:
        rights.check(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    kind = RESOURCES[query.resource]
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else query.name
    if not name:
        raise ApiProblem(400, f"name the {query.resource}, for example name=orders")
    host = _host(query.host)
    explained = RightsExplanation((), ())
    if security.acls is not None:
        explained = await asyncio.to_thread(explain_rights, security.acls.table, str(principal), host, kind, name)
    reasons = {each.operation: each.reasons for each in explained.verdicts}
    allowed = security.authorizer.operations(principal, host, kind, name)
    known = principal.kind == USER and security.users.find(principal.name) is not None
    return EffectiveRights(
        principal=str(principal),
        resource=query.resource,
        name=name,
        host=host,
        is_super=rights.are_checked and security.authorizer.is_super(principal),
        checks_acls=rights.are_checked,
        is_known=(known or str(principal) == EVERY_USER) if may_list else None,
        operations=[
            OperationRow(
                operation=word(each),
                allowed=bool(allowed >> each & 1),
                because=[acl_row(reason) for reason in reasons.get(each, ())] if may_list else [],
            )
            for each in sorted(SUPPORTED[kind])
        ],
        elsewhere=[acl_row(each) for each in explained.elsewhere] if may_list else [],
    )


def _principal(text: str) -> Principal:
    try:
        [found] = parse_principals([text])
    except InvalidSelection as error:
        raise ApiProblem(400, str(error)) from None
    return parse_principal(found)


def _host(text: str) -> str:
    if text in {"", WILDCARD}:
        return WILDCARD
    try:
        return str(ip_address(text))
    except ValueError:
        raise ApiProblem(400, f"{text!r} is not an IP address; ACLs do not know host names") from None


HANDLERS: dict[str, ApiHandler] = {
    "GET /api/v1/me": describe_client,
    "GET /api/v1/security": describe_security,
    "GET /api/v1/security/rights": explain,
    **users.HANDLERS,
    **acls.HANDLERS,
    **quotas.HANDLERS,
}
PARTS: Sequence[PartKind[Any, Any]] = ()
