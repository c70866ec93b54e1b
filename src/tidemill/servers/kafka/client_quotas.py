"""DescribeClientQuotas and AlterClientQuotas: the quotas of users, client ids and addresses."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from tidemill.model.errors import InvalidRequest, TidemillError
from tidemill.security.core.quotas import QuotaEntity, QuotaValues, parse_entity, parse_filter
from tidemill.security.core.resources import Operation
from tidemill.security.quotas import check_entity_count
from tidemill.servers.kafka.api import Call, error_code, error_message

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
    from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
    from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
    from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse


async def describe_client_quotas(
    call: Call["DescribeClientQuotasResponse"], request: "DescribeClientQuotasRequest"
) -> "DescribeClientQuotasResponse":
    """The entities that a filter selects, with their quotas."""
    try:
        call.check_cluster(Operation.DESCRIBE_CONFIGS)
        wanted = parse_filter(
            ((each.entity_type, each.match_type, each.match) for each in request.components), is_strict=request.strict
        )
    except TidemillError as error:
        return call.response(error_code=error_code(error), error_message=error_message(error), entries=None)
    entries = [
        _described(call, entity, values)
        async for entity, values in call.in_slices(call.broker.security.quotas.find(wanted))
    ]
    return call.response(error_code=0, error_message=None, entries=tuple(entries))


def _described(call: Call, entity: QuotaEntity, values: QuotaValues) -> Any:
    return call.part(
        "EntryData",
        entity=tuple(call.part("EntityData", entity_type=kind, entity_name=name) for kind, name in entity.entries),
        values=tuple(call.part("ValueData", key=kind.value, value=value) for kind, value in values.items()),
    )


async def alter_client_quotas(
    call: Call["AlterClientQuotasResponse"], request: "AlterClientQuotasRequest"
) -> "AlterClientQuotasResponse":
    """Set and remove quotas; each entity succeeds or fails by itself."""
    refusal: TidemillError | None = None
    try:
        call.check_cluster(Operation.ALTER_CONFIGS)
        check_entity_count(len(request.entries))
    except TidemillError as error:
        refusal = error
    counted = Counter(frozenset(_pairs(entry)) for entry in request.entries)
    results = []
    async for entry in call.in_slices(request.entries):
        failure = refusal
        try:
            if failure is None:
                await _alter(call, entry, counted, validate_only=request.validate_only)
        except TidemillError as error:
            failure = error
        results.append(
            call.part(
                "EntryData",
                error_code=error_code(failure),
                error_message=error_message(failure),
                entity=tuple(
                    call.part("EntityData", entity_type=kind, entity_name=name) for kind, name in _pairs(entry)
                ),
            )
        )
    return call.response(entries=tuple(results))


def _pairs(entry: Any) -> list[tuple[str, str | None]]:
    return [(each.entity_type, each.entity_name) for each in entry.entity]


async def _alter(
    call: Call, entry: Any, counted: Counter[frozenset[tuple[str, str | None]]], *, validate_only: bool
) -> None:
    entity = parse_entity(_pairs(entry))
    if counted[frozenset(_pairs(entry))] > 1:
        raise InvalidRequest(f"the request names the entity {entity} twice; name each entity once")
    changes = [(each.key, None if each.remove else each.value) for each in entry.ops]
    await call.broker.security.quotas.alter(entity, changes, validate_only=validate_only)
    if not validate_only:
        shown = ",".join(f"{key}={'removed' if value is None else f'{value:g}'}" for key, value in changes)
        call.changed("quota_altered", entity=str(entity), quotas=shown)
