"""DescribeClientQuotas and AlterClientQuotas, as Apache Kafka answers them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.quotas import Entity, alter, describe, entry, listed, set_quotas
from tests.unit.servers.kafka.admin_client import connected

from tidemill.security import quotas as module

INVALID_REQUEST, UNSUPPORTED_VERSION, POLICY_VIOLATION = 42, 35, 44


async def test_quotas_are_set_merged_and_removed(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        ann: Entity = {"user": "ann"}
        await set_quotas(client, ann, producer_byte_rate=1024.0)
        await set_quotas(client, ann, request_percentage=12.5)
        assert await listed(client) == {(("user", "ann"),): {"producer_byte_rate": 1024.0, "request_percentage": 12.5}}
        assert server.broker.security.throttle.is_enabled
        await set_quotas(client, ann, producer_byte_rate=None, consumer_byte_rate=None)
        assert await listed(client) == {(("user", "ann"),): {"request_percentage": 12.5}}
        await set_quotas(client, ann, request_percentage=None)
        assert await listed(client) == {}
        assert not server.broker.security.throttle.is_enabled


@pytest.mark.parametrize("version", [0, 1])
async def test_each_version(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, _):
        made = entry({"client-id": None}, {"consumer_byte_rate": 5.0}, version)
        assert await alter(client, made, version=version) == [0]
        response = await describe(client, version=version)
        assert [(each.entity[0].entity_type, each.entity[0].entity_name) for each in response.entries] == [
            ("client-id", None)
        ]


async def test_a_check_changes_nothing(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, _):
        made = [entry({"user": "ann"}, {"producer_byte_rate": rate}) for rate in (1.0, -1.0)]
        assert await alter(client, made[0], validate_only=True) == [0]
        assert await alter(client, made[1], validate_only=True) == [INVALID_REQUEST]
        assert await listed(client) == {}


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"team": "a"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "a", "ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"ip": "not-an-address"}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"user": "a"}, {"connection_creation_rate": 1.0}),
        ({"user": "a"}, {"unknown": 1.0}),
        ({"user": "a"}, {"unknown": None}),
        ({"user": "a"}, {"producer_byte_rate": 0.0}),
        ({"user": "a"}, {"producer_byte_rate": 0.5}),
        ({"user": "a"}, {"producer_byte_rate": float("nan")}),
        ({"user": "a" * 300}, {"producer_byte_rate": 1.0}),
    ],
)
async def test_invalid_changes(tmp_path: Path, entity: Entity, quotas: Mapping[str, float | None]) -> None:
    async with connected(tmp_path) as (client, _):
        good = entry({"client-id": "app"}, {"producer_byte_rate": 1.0})
        assert await alter(client, entry(entity, quotas), good) == [INVALID_REQUEST, 0]
        assert await listed(client) == {(("client-id", "app"),): {"producer_byte_rate": 1.0}}


async def test_an_entity_is_altered_once_in_a_request(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, _):
        one = entry({"user": "a", "client-id": None}, {"producer_byte_rate": 1.0})
        other = entry({"client-id": None, "user": "a"}, {"producer_byte_rate": 2.0})
        assert await alter(client, one, other) == [INVALID_REQUEST, INVALID_REQUEST]
        assert await listed(client) == {}


async def test_the_number_of_entities_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUOTA_ENTITIES_MAX", 2)
    monkeypatch.setattr(module, "QUOTA_ENTITIES_PER_REQUEST_MAX", 3)
    async with connected(tmp_path) as (client, _):
        made = [entry({"user": f"u{number}"}, {"producer_byte_rate": 1.0}) for number in range(4)]
        assert await alter(client, *made) == [INVALID_REQUEST] * 4
        assert await alter(client, *made[:3]) == [0, 0, POLICY_VIOLATION]
        await set_quotas(client, {"user": "u0"}, producer_byte_rate=2.0)
        await set_quotas(client, {"user": "u0"}, producer_byte_rate=None)
        assert await alter(client, made[3]) == [0]


async def test_filters(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, _):
        entities: list[Entity] = [
            {"user": "ann"},
            {"user": None},
            {"user": "ann", "client-id": "app"},
            {"client-id": None},
        ]
        for entity in entities:
            await set_quotas(client, entity, producer_byte_rate=10.0)
        await set_quotas(client, {"ip": "10.0.0.1"}, connection_creation_rate=10.0)

        async def selected(*components: tuple[str, int, str | None], strict: bool = False) -> list[dict[str, Any]]:
            return [dict(found) for found in await listed(client, *components, strict=strict)]

        assert await selected(("user", 0, "ann")) == [entities[0], entities[2]]
        assert await selected(("user", 0, "ann"), strict=True) == [entities[0]]
        assert await selected(("user", 1, None)) == [entities[1]]
        assert await selected(("user", 2, None), strict=True) == entities[:2]
        assert await selected(("client-id", 1, None), ("user", 2, None)) == []
        assert await selected(("ip", 2, None)) == [{"ip": "10.0.0.1"}]
        assert len(await selected()) == 5
        assert await selected(strict=True) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "a")], INVALID_REQUEST),
        ([("user", 0, None)], INVALID_REQUEST),
        ([("user", 1, "a")], INVALID_REQUEST),
        ([("user", 7, None)], INVALID_REQUEST),
        ([("user", 0, "a"), ("user", 1, None)], INVALID_REQUEST),
        ([("ip", 0, "::1"), ("user", 0, "a")], INVALID_REQUEST),
        ([("team", 0, "a")], UNSUPPORTED_VERSION),
    ],
)
async def test_invalid_filters(tmp_path: Path, components: list[tuple[str, int, str | None]], code: int) -> None:
    async with connected(tmp_path) as (client, _):
        response = await describe(client, *components)
        assert int(response.error_code) == code
        assert response.error_message
        assert response.entries is None


async def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, _):
        await set_quotas(client, {"user": "µ/%, \n", "client-id": None}, producer_byte_rate=10.0)
    async with connected(tmp_path) as (client, server):
        assert await listed(client) == {(("user", "µ/%, \n"), ("client-id", None)): {"producer_byte_rate": 10.0}}
        assert server.broker.security.throttle.is_enabled
