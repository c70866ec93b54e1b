"""ACL bindings and filters: what is valid, what a filter selects, and the stored form."""

from typing import Any

import pytest

from tidemill.model.errors import InvalidRequest
from tidemill.security.core.acls import (
    SUPPORTED,
    AclBinding,
    AclFilter,
    binding_id,
    check_binding,
    decode_binding,
    encode_binding,
    parse_binding,
    parse_filter,
)
from tidemill.security.core.resources import Operation, PatternType, Permission, ResourceType

ORDERS = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
)
PREFIX = ORDERS._replace(name="ord", pattern=PatternType.PREFIXED)
EVERY = ORDERS._replace(name="*")


@pytest.mark.parametrize("binding", [ORDERS, PREFIX, EVERY, ORDERS._replace(principal="User:ü:x", host="::1")])
def test_binding_survives_the_store(binding: AclBinding) -> None:
    assert decode_binding(encode_binding(binding)) == binding


def test_same_binding_has_the_same_id_and_another_binding_another() -> None:
    assert binding_id(ORDERS) == binding_id(AclBinding(*ORDERS))
    assert len({binding_id(each) for each in (ORDERS, PREFIX, EVERY, ORDERS._replace(host="1.2.3.4"))}) == 4


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        encode_binding(ORDERS).replace(b"READ", b"PAINT"),
        encode_binding(ORDERS._replace(principal="alice")),
        encode_binding(ORDERS._replace(operation=Operation.CLUSTER_ACTION)),
        encode_binding(ORDERS._replace(pattern=PatternType.MATCH)),
    ],
)
def test_unreadable_stored_binding_is_reported(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_binding(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resource_type": ResourceType.ANY}, "resource type ANY"),
        ({"resource_type": ResourceType.UNKNOWN}, "resource type UNKNOWN"),
        ({"pattern": PatternType.MATCH}, "pattern type MATCH"),
        ({"pattern": PatternType.ANY}, "pattern type ANY"),
        ({"operation": Operation.ANY}, "no operation ANY"),
        ({"operation": Operation.CLUSTER_ACTION}, "no operation CLUSTER_ACTION"),
        ({"permission": Permission.ANY}, "permission ANY"),
        ({"name": ""}, "is empty"),
        ({"name": "x" * 1001}, "1001 characters"),
        ({"principal": "alice"}, "not a principal"),
        ({"principal": "User:"}, "not a principal"),
        ({"principal": ":alice"}, "not a principal"),
        ({"principal": "User:" + "x" * 1000}, "1005 characters"),
        ({"resource_type": ResourceType.CLUSTER, "operation": Operation.ALTER}, "kafka-cluster"),
        ({"resource_type": ResourceType.GROUP, "operation": Operation.WRITE}, "GROUP has no operation WRITE"),
    ],
)
def test_invalid_binding_is_rejected_with_the_reason(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_binding(ORDERS._replace(**change))


@pytest.mark.parametrize("resource_type", SUPPORTED)
def test_all_is_accepted_on_every_resource_type(resource_type: ResourceType) -> None:
    name = "kafka-cluster" if resource_type == ResourceType.CLUSTER else "x"
    check_binding(ORDERS._replace(resource_type=resource_type, name=name, operation=Operation.ALL))


@pytest.mark.parametrize("number", [0, -1, 99])
def test_numbers_that_no_enum_has_are_rejected(number: int) -> None:
    for place in (0, 2, 5, 6):
        fields: list[Any] = [2, "orders", 3, "User:alice", "*", 3, 3]
        fields[place] = number
        with pytest.raises(InvalidRequest, match=f"{number} of an ACL is not known"):
            parse_binding(*fields)
        with pytest.raises(InvalidRequest, match=f"{number} of an ACL is not known"):
            parse_filter(*fields)


def test_host_is_an_address_in_the_form_that_connections_report() -> None:
    assert parse_binding(2, "orders", 3, "User:alice", "0:0::1", 3, 3).host == "::1"
    assert parse_filter(1, None, 1, None, "0:0::1", 1, 1).host == "::1"
    assert parse_filter(1, None, 1, None, "web.example", 1, 1).host == "web.example"
    with pytest.raises(InvalidRequest, match="not an IP address"):
        parse_binding(2, "orders", 3, "User:alice", "web.example", 3, 3)


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (PatternType.ANY, None, {ORDERS, PREFIX, EVERY}),
        (PatternType.MATCH, None, {ORDERS, PREFIX, EVERY}),
        (PatternType.LITERAL, None, {ORDERS, EVERY}),
        (PatternType.PREFIXED, None, {PREFIX}),
        (PatternType.ANY, "orders", {ORDERS}),
        (PatternType.ANY, "ord", {PREFIX}),
        (PatternType.LITERAL, "*", {EVERY}),
        (PatternType.MATCH, "orders", {ORDERS, PREFIX, EVERY}),
        (PatternType.MATCH, "order", {PREFIX, EVERY}),
        (PatternType.MATCH, "or", {EVERY}),
        (PatternType.MATCH, "*", {EVERY}),
        (PatternType.PREFIXED, "orders", set()),
    ],
)
def test_filter_matches_resources_as_kafka_does(pattern: PatternType, name: str | None, found: set[AclBinding]) -> None:
    wanted = AclFilter(name=name, pattern=pattern)
    assert {each for each in (ORDERS, PREFIX, EVERY) if wanted.covers(each)} == found


@pytest.mark.parametrize(
    "wanted",
    [
        AclFilter(resource_type=ResourceType.GROUP),
        AclFilter(principal="User:bob"),
        AclFilter(host="1.2.3.4"),
        AclFilter(operation=Operation.WRITE),
        AclFilter(operation=Operation.ALL),
        AclFilter(permission=Permission.DENY),
    ],
)
def test_filter_with_another_value_does_not_match(wanted: AclFilter) -> None:
    assert not wanted.covers(ORDERS)
