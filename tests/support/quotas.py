"""Sets and lists quotas with requests of Kafka's protocol. No Python client of Kafka has a call for them."""

from collections.abc import Mapping
from typing import Any

from tests.support.kafka_server import RawClient, request_part

ALTER, DESCRIBE = 49, 48
VERSION = 1
Entity = Mapping[str, str | None]


def entry(entity: Entity, quotas: Mapping[str, float | None], version: int = VERSION) -> Any:
    parts = tuple(
        request_part(ALTER, version, "EntityData", entity_type=kind, entity_name=name) for kind, name in entity.items()
    )
    ops = tuple(
        request_part(ALTER, version, "OpData", key=key, value=0.0 if value is None else value, remove=value is None)
        for key, value in quotas.items()
    )
    return request_part(ALTER, version, "EntryData", entity=parts, ops=ops)


async def alter(client: RawClient, *entries: Any, validate_only: bool = False, version: int = VERSION) -> list[int]:
    """The error codes of the entries."""
    response = await client.ask(ALTER, version, entries=entries, validate_only=validate_only)
    return [int(each.error_code) for each in response.entries]


async def set_quotas(client: RawClient, entity: Entity, **quotas: float | None) -> None:
    assert await alter(client, entry(entity, quotas)) == [0]


async def describe(
    client: RawClient, *components: tuple[str, int, str | None], strict: bool = False, version: int = VERSION
) -> Any:
    parts = tuple(
        request_part(DESCRIBE, version, "ComponentData", entity_type=kind, match_type=match, match=name)
        for kind, match, name in components
    )
    return await client.ask(DESCRIBE, version, components=parts, strict=strict)


async def listed(client: RawClient, *components: tuple[str, int, str | None], strict: bool = False) -> dict[Any, Any]:
    """The quotas of each entity that the filter selects."""
    response = await describe(client, *components, strict=strict)
    assert int(response.error_code) == 0, response.error_message
    return {
        tuple((each.entity_type, each.entity_name) for each in found.entity): {
            each.key: each.value for each in found.values
        }
        for found in response.entries
    }
