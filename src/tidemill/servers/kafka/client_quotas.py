"""DescribeClientQuotas and AlterClientQuotas: the quotas of users, client ids and addresses."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from tidemill.model.errors import InvalidRequest, TidemillError
from tidemill.security.core.quotas import ENTITY_TYPES, QuotaEntity, QuotaValues, parse_entity, parse_filter
from tidemill.security.core.resources import Operation
from tidemill.security.quotas import check_entity_count
from tidemill.servers.kafka.api import Call, error_code, error_message

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
    from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
    from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
    from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse

QUOTAS_PER_ENTITY_MAX = 100
"""The most quotas of one entity in a request."""


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
    counted = Counter([_named(entry) async for entry in call.in_slices(request.entries)])
    results = []
    async for entry in call.in_slices(request.entries):
        failure = refusal
        try:
            if counted[_named(entry)] > 1:
                raise InvalidRequest("the request names this entity twice; name each entity once")
            if failure is None:
                await _alter(call, entry, validate_only=request.validate_only)
        except TidemillError as error:
            failure = failure or error
        entity = [
            call.part("EntityData", entity_type=each.entity_type, entity_name=each.entity_name)
            async for each in call.in_slices(entry.entity)
        ]
        results.append(
            call.part(
                "EntryData",
                error_code=error_code(failure),
                error_message=error_message(failure),
                entity=tuple(entity),
            )
        )
    return call.response(entries=tuple(results))


def _named(entry: Any) -> frozenset[tuple[str, str | None]]:
    """What an entry names, in any order; a valid one names each type once."""
    return frozenset((each.entity_type, each.entity_name) for each in entry.entity[: len(ENTITY_TYPES) + 1])


async def _alter(call: Call, entry: Any, *, validate_only: bool) -> None:
    if len(entry.entity) > len(ENTITY_TYPES) or len(entry.ops) > QUOTAS_PER_ENTITY_MAX:
        raise InvalidRequest(
            f"the entity has {len(entry.entity)} types and {len(entry.ops)} quotas; at most {len(ENTITY_TYPES)} and "
            f"{QUOTAS_PER_ENTITY_MAX} are possible"
        )
    entity = parse_entity([(each.entity_type, each.entity_name) for each in entry.entity])
    changes = [(each.key, None if each.remove else each.value) for each in entry.ops]
    await call.broker.security.quotas.alter(entity, changes, validate_only=validate_only)
    if not validate_only:
        shown = ",".join(f"{key}={'removed' if value is None else f'{value:g}'}" for key, value in changes)
        call.changed("quota_altered", entity=str(entity), quotas=shown)
