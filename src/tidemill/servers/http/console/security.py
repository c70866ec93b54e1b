"""Users, ACLs and quotas in the console. What a client may not do is not offered to it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tidemill.security.core.acl_selection import word
from tidemill.security.core.acls import SUPPORTED
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.http.api.acls import list_acls, resource_of
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.quotas import list_quotas
from tidemill.servers.http.api.security import describe_security, explain, identity_of, may
from tidemill.servers.http.api.users import list_users
from tidemill.servers.http.console.page import Page, PageHandler
from tidemill.wire.http.cluster import ServerRow
from tidemill.wire.http.security import AclQuery, QuotaQuery, RightsQuery, UserQuery

EXPIRES_SOON_MS = 30 * 86_400_000
RESOURCE_CHOICES = (
    ("topic", "Topic or timeline"),
    ("group", "Consumer group"),
    ("transactional-id", "Transactional id"),
    ("cluster", "Cluster"),
)
OPERATIONS = tuple(
    word(each)
    for each in sorted({*SUPPORTED[ResourceType.TOPIC], *SUPPORTED[ResourceType.CLUSTER], Operation.TWO_PHASE_COMMIT})
)
QUOTA_NOTES = {
    "producer_byte_rate": "Bytes that are produced in a second.",
    "consumer_byte_rate": "Bytes that are fetched in a second.",
    "request_percentage": "Share of the broker's time: 50 is half of one processor.",
    "controller_mutation_rate": "Partitions that are created or deleted in a second.",
    "connection_creation_rate": "Connections that are opened in a second.",
}


async def security_page(context: ApiContext, call: ApiCall[None, None]) -> Page:
    """`/security`."""
    status = await describe_security(context, call) if may(call.rights, Operation.DESCRIBE) else None
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    servers = [] if status is None else [(one.broker, row) for one in status.brokers for row in one.servers]
    return Page(
        "Security",
        "security/overview.html",
        {
            **_shared(context, call),
            "status": status,
            "servers": servers,
            "certificates": {(broker, row.server, row.listener): _tone(row, now_ms) for broker, row in servers},
        },
    )


def _tone(row: ServerRow, now_ms: int) -> str:
    if row.certificate_expires_ms is None:
        return ""
    left_ms = row.certificate_expires_ms - now_ms
    return "bad" if left_ms <= 0 else "warn" if left_ms < EXPIRES_SOON_MS else "ok"


async def users_page(context: ApiContext, call: ApiCall[UserQuery, None]) -> Page:
    """`/security/users`."""
    values = {"found": await list_users(context, call), "asked": call.query}
    return Page("Users", "security/users.html", {**_shared(context, call), **values})


async def acls_page(context: ApiContext, call: ApiCall[AclQuery, None]) -> Page:
    """`/security/acls`."""
    found = await list_acls(context, call) if call.rights.are_checked else None
    values = {
        "found": found,
        "asked": call.query,
        "resource_of": resource_of,
        "operations": OPERATIONS,
        "resources": RESOURCE_CHOICES,
    }
    return Page("ACLs", "security/acls.html", {**_shared(context, call), **values})


async def quotas_page(context: ApiContext, call: ApiCall[QuotaQuery, None]) -> Page:
    """`/security/quotas`."""
    values = {"found": await list_quotas(context, call), "asked": call.query, "notes": QUOTA_NOTES}
    return Page("Quotas", "security/quotas.html", {**_shared(context, call), **values, "entity_text": entity_text})


def entity_text(entity: Mapping[str, str | None]) -> str:
    """Whom a quota is for."""
    return ", ".join(f"every other {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items())


async def rights_page(context: ApiContext, call: ApiCall[RightsQuery, None]) -> Page:
    """`/security/rights`."""
    query = call.query
    is_asked = bool(query.name) or query.resource == "cluster"
    values = {
        "found": await explain(context, call) if is_asked else None,
        "asked": query,
        "resources": RESOURCE_CHOICES,
    }
    return Page("Effective rights", "security/rights.html", {**_shared(context, call), **values})


def _shared(context: ApiContext, call: ApiCall[Any, None]) -> dict[str, Any]:
    """What all tabs show: who the client is, and what it may do."""
    rights, may_write = call.rights, not context.is_readonly
    return {
        "me": identity_of(context, rights),
        "sees_users": may(rights, Operation.DESCRIBE),
        "sees_quotas": may(rights, Operation.DESCRIBE_CONFIGS),
        "may_change": may_write and may(rights, Operation.ALTER),
        "may_change_quotas": may_write and may(rights, Operation.ALTER_CONFIGS),
    }


PAGES: dict[str, PageHandler] = {
    "GET /security": security_page,
    "GET /security/users": users_page,
    "GET /security/acls": acls_page,
    "GET /security/quotas": quotas_page,
    "GET /security/rights": rights_page,
}
