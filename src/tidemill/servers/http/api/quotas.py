"""Quotas in the JSON API. The Kafka server makes the changes, for the client."""

from collections.abc import Mapping, Sequence

from tidemill.client.kafka.client import KafkaClient
from tidemill.client.kafka.quotas import QuotaChange
from tidemill.model.errors import InvalidRequest
from tidemill.security.core.quotas import (
    QuotaEntity,
    QuotaFilter,
    QuotaValues,
    applying,
    parse_entity,
    parse_value,
)
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.paging import rows_of
from tidemill.wire.http.security import (
    AppliedQuotaQuery,
    AppliedQuotaRow,
    AppliedQuotas,
    QuotaChangeInput,
    QuotaEntityInput,
    QuotaPage,
    QuotaQuery,
    QuotaRemovalInput,
    QuotaRow,
)

EVERY_ENTITY = QuotaFilter({}, frozenset(), is_strict=False)


async def list_quotas(context: ApiContext, call: ApiCall[QuotaQuery, None]) -> QuotaPage:
    """A page of the entities that have quotas."""
    query = call.query
    found = [
        (entity, values)
        for entity, values in context.broker.security.quotas.find(EVERY_ENTITY)
        if query.search in str(entity) and (not query.type or query.type in dict(entity.entries))
    ]
    rows = [
        QuotaRow(entity=dict(entity.entries), quotas={kind.value: value for kind, value in values.items()})
        for entity, values in rows_of(found, query, _sort_key)
    ]
    return QuotaPage(entities=rows, total=len(found))


def _sort_key(each: tuple[QuotaEntity, QuotaValues]) -> tuple[tuple[str, str], ...]:
    """Defaults come before names."""
    return tuple((kind, name or "") for kind, name in each[0].entries)


async def set_quotas(context: ApiContext, call: ApiCall[None, QuotaChangeInput]) -> QuotaRow:
    """Set quotas of an entity. Null removes one."""
    body = call.body
    entity = _entity(body.entity)
    try:
        for key, value in body.quotas.items():
            if value is not None:
                parse_value(entity, key, value)
    except InvalidRequest as error:
        raise ApiProblem(400, str(error)) from None
    changes = dict(body.quotas)
    await context.as_client(call.rights, lambda client: _alter(client, entity, changes, dry_run=body.dry_run))
    known = _values(context, entity)
    kept = {key: value for key, value in {**known, **changes}.items() if value is not None}
    return QuotaRow(entity=dict(entity.entries), quotas=kept)


async def remove_quotas(context: ApiContext, call: ApiCall[None, QuotaRemovalInput]) -> QuotaRow:
    """Remove quotas of an entity; what it had is returned."""
    body = call.body
    entity = _entity(body.entity)
    known = _values(context, entity)
    names: Sequence[str] = sorted(known) if body.quotas is None else body.quotas
    missing = [name for name in names if name not in known]
    if missing or not names:
        raise ApiProblem(404, f"{entity} has no quota{f' {missing[0]}' if missing else ''}; list the quotas to see all")
    await context.as_client(
        call.rights, lambda client: _alter(client, entity, dict.fromkeys(names, None), dry_run=False)
    )
    return QuotaRow(entity=dict(entity.entries), quotas={name: known[name] for name in names})


async def applied_quotas(context: ApiContext, call: ApiCall[AppliedQuotaQuery, None]) -> AppliedQuotas:
    """The quotas that a client has, and the entity that each comes from."""
    query = call.query
    if query.ip and (query.user or query.client_id):
        raise ApiProblem(400, "give a user and a client id, or an address")
    known = dict(context.broker.security.quotas.find(EVERY_ENTITY))
    try:
        found = applying(known, query.user, query.client_id, query.ip or None)
    except ValueError:
        raise ApiProblem(400, f"{query.ip!r} is not an IP address") from None
    return AppliedQuotas(
        quotas=[
            AppliedQuotaRow(quota=kind.value, value=value, entity=dict(entity.entries))
            for kind, (entity, value) in found.items()
        ]
    )


def _entity(given: QuotaEntityInput) -> QuotaEntity:
    try:
        return parse_entity(list(given.items()))
    except InvalidRequest as error:
        raise ApiProblem(400, str(error)) from None


def _values(context: ApiContext, entity: QuotaEntity) -> dict[str, float]:
    wanted = QuotaFilter(dict(entity.entries), frozenset(), is_strict=True)
    found = context.broker.security.quotas.find(wanted)
    return {kind.value: value for _, values in found for kind, value in values.items()}


def _alter(client: KafkaClient, entity: QuotaEntity, changes: Mapping[str, float | None], *, dry_run: bool) -> None:
    [error] = client.alter_quotas([QuotaChange(entity.entries, changes)], dry_run=dry_run)
    if error is not None:
        raise error


HANDLERS: dict[str, ApiHandler] = {
    "GET /api/v1/quotas": list_quotas,
    "GET /api/v1/quotas/applied": applied_quotas,
    "PUT /api/v1/quotas": set_quotas,
    "POST /api/v1/quotas/removals": remove_quotas,
}
