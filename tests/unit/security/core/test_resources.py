"""Kafka's numbers of resource types, patterns, operations and permissions, as in `AclOperation.java` and its like."""

from enum import IntEnum

import pytest

from tidemill.security.core.resources import Operation, PatternType, Permission, ResourceType


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (PatternType, "UNKNOWN ANY MATCH LITERAL PREFIXED"),
        (Permission, "UNKNOWN ANY DENY ALLOW"),
        (
            Operation,
            (
                "UNKNOWN ANY ALL READ WRITE CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS "
                "IDEMPOTENT_WRITE CREATE_TOKENS DESCRIBE_TOKENS TWO_PHASE_COMMIT"
            ),
        ),
        (ResourceType, "UNKNOWN ANY TOPIC GROUP CLUSTER TRANSACTIONAL_ID DELEGATION_TOKEN USER"),
    ],
)
def test_numbers_are_those_of_kafka(kind: type[IntEnum], names: str) -> None:
    assert {each.name: each.value for each in kind} == {name: number for number, name in enumerate(names.split())}
