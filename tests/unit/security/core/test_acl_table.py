"""The table of ACLs: Kafka's decisions, compared with a plain implementation of its rules."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.security.core.acl_table import EVERY_OPERATION, AclTable
from tidemill.security.core.acls import AclBinding, AclFilter
from tidemill.security.core.resources import Operation, PatternType, Permission, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALICE, HOST = "User:alice", "10.0.0.1"


def acl(
    operation: Operation = Operation.READ,
    name: str = "orders",
    *,
    deny: bool = False,
    prefixed: bool = False,
    principal: str = ALICE,
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> AclBinding:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(kind, name, pattern, principal, host, operation, Permission.DENY if deny else Permission.ALLOW)


def allows(table: AclTable, operation: Operation, name: str = "orders", host: str = HOST) -> bool:
    return bool(table.decide(ALICE, host, TOPIC, name).operations >> operation & 1)


def test_an_empty_table_allows_nothing_and_names_nothing() -> None:
    assert AclTable().decide(ALICE, HOST, TOPIC, "orders") == (0, False)


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_allow_implies_describe_and_deny_does_not(operation: Operation) -> None:
    assert allows(AclTable([acl(operation)]), Operation.DESCRIBE)
    assert allows(AclTable([acl(Operation.ALL), acl(operation, deny=True)]), Operation.DESCRIBE)
    assert not allows(AclTable([acl(operation), acl(Operation.DESCRIBE, deny=True)]), Operation.DESCRIBE)


def test_alter_configs_implies_describe_configs_only() -> None:
    table = AclTable([acl(Operation.ALTER_CONFIGS)])
    assert allows(table, Operation.DESCRIBE_CONFIGS)
    assert not allows(table, Operation.DESCRIBE)
    assert not allows(AclTable([acl(Operation.CREATE)]), Operation.DESCRIBE)


def test_deny_wins_over_allow_for_every_kind_of_pattern() -> None:
    for deny in (acl(deny=True), acl(name="*", deny=True), acl(name="or", prefixed=True, deny=True)):
        assert not allows(AclTable([acl(), acl(name="*"), acl(name="o", prefixed=True), deny]), Operation.READ)


def test_deny_of_all_denies_everything() -> None:
    assert AclTable([acl(Operation.ALL), acl(Operation.ALL, deny=True)]).decide(ALICE, HOST, TOPIC, "orders") == (
        0,
        True,
    )


def test_all_allows_every_operation() -> None:
    assert AclTable([acl(Operation.ALL)]).decide(ALICE, HOST, TOPIC, "orders").operations == EVERY_OPERATION


def test_patterns_cover_the_names_that_kafka_says() -> None:
    table = AclTable([acl(name="order", prefixed=True)])
    assert [
        name for name in ("ord", "order", "orders", "Orders", "x-order") if allows(table, Operation.READ, name)
    ] == [
        "order",
        "orders",
    ]
    assert allows(AclTable([acl(name="*")]), Operation.READ, "anything")
    assert not allows(AclTable([acl(name="*", prefixed=True)]), Operation.READ, "anything")


def test_every_user_and_hosts() -> None:
    assert allows(AclTable([acl(principal="User:*")]), Operation.READ)
    assert not allows(AclTable([acl(principal="User:bob")]), Operation.READ)
    assert allows(AclTable([acl(host=HOST)]), Operation.READ)
    assert not allows(AclTable([acl(host="10.0.0.2")]), Operation.READ)
    assert not allows(AclTable([acl(), acl(principal="User:*", host=HOST, deny=True)]), Operation.READ)


def test_a_resource_has_acls_also_if_they_are_of_another_user() -> None:
    table = AclTable([acl(principal="User:bob"), acl(name="pay", prefixed=True, principal="User:bob")])
    assert [table.decide(ALICE, HOST, TOPIC, name).has_acls for name in ("orders", "payments", "other")] == [
        True,
        True,
        False,
    ]
    assert not table.decide(ALICE, HOST, GROUP, "orders").has_acls


def test_changes_make_a_new_table_and_leave_the_old_one() -> None:
    old = AclTable([acl(), acl(name="pay", prefixed=True)])
    new = old.with_changes([acl(Operation.WRITE), acl()], [acl(name="pay", prefixed=True), acl(name="absent")])
    assert set(old) == {acl(), acl(name="pay", prefixed=True)}
    assert len(old) == 2
    assert set(new) == {acl(), acl(Operation.WRITE)}
    assert len(new) == 2
    assert allows(old, Operation.READ, "payments")
    assert not allows(new, Operation.READ, "payments")
    assert list(new.with_changes([], [acl(), acl(Operation.WRITE)])) == []


def test_allowed_anywhere() -> None:
    def found(*bindings: AclBinding) -> bool:
        return AclTable(bindings).allows_anywhere(ALICE, HOST, Operation.WRITE, TOPIC)

    write = acl(Operation.WRITE)
    assert not found()
    assert found(write)
    assert found(acl(Operation.ALL, "x", prefixed=True))
    assert found(acl(Operation.WRITE, "*"), acl(Operation.WRITE, "orders", deny=True))
    assert not found(write, acl(Operation.WRITE, "orders", deny=True))
    assert not found(write, acl(Operation.WRITE, "or", prefixed=True, deny=True))
    assert not found(acl(Operation.WRITE, "ord", prefixed=True), acl(Operation.ALL, "or", prefixed=True, deny=True))
    assert found(acl(Operation.WRITE, "o", prefixed=True), acl(Operation.ALL, "or", prefixed=True, deny=True))
    assert not found(acl(Operation.WRITE, "*"), acl(Operation.WRITE, "*", deny=True))
    assert not found(acl(Operation.READ))
    assert not found(acl(Operation.WRITE, principal="User:bob"))
    assert not found(acl(Operation.WRITE, host="1.1.1.1"))
    assert not found(acl(Operation.WRITE, "orders", kind=ResourceType.TRANSACTIONAL_ID))


names = st.text(alphabet="ab", min_size=1, max_size=3)
bindings = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    names | st.just("*"),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([ALICE, "User:bob", "User:*"]),
    st.sampled_from([HOST, "10.0.0.2", "*"]),
    st.sampled_from([Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
IMPLIED_BY = {Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}}


def plain_decision(every: set[AclBinding], operation: Operation, name: str) -> bool:
    """Kafka's rules, written as a loop over all bindings."""
    mine = [
        each
        for each in every
        if each.resource_type == TOPIC
        and (name.startswith(each.name) if each.pattern == PatternType.PREFIXED else each.name in {name, "*"})
        and each.principal in {ALICE, "User:*"}
        and each.host in {HOST, "*"}
    ]
    if any(each.permission == Permission.DENY and each.operation in {operation, Operation.ALL} for each in mine):
        return False
    enough = {operation, Operation.ALL} | IMPLIED_BY.get(operation, set())
    return any(each.permission == Permission.ALLOW and each.operation in enough for each in mine)


@given(st.lists(bindings, max_size=8), st.lists(bindings, max_size=4), names)
@settings(max_examples=300, deadline=None)
def test_decisions_and_searches_equal_a_plain_loop(given_: list[AclBinding], gone: list[AclBinding], name: str) -> None:
    every = set(given_) - set(gone)
    table = AclTable(given_).with_changes([], gone)
    assert set(table) == every
    assert len(table) == len(every)
    for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE):
        assert allows(table, operation, name) == plain_decision(every, operation, name)
    kinds = (ResourceType.ANY, TOPIC)
    for kind, pattern, wanted_name in product(kinds, list(PatternType)[1:], (None, name)):
        wanted = AclFilter(kind, wanted_name, pattern)
        assert set(table.find(wanted)) == {each for each in every if wanted.covers(each)}


def test_cost_of_a_decision_does_not_grow_with_other_acls() -> None:
    """Counted, not timed: the patterns that a decision reads are those of its own name."""
    table = AclTable(acl(name=f"topic-{number:05}", prefixed=number % 2 == 0) for number in range(5000))
    assert len(list(table._covering(TOPIC, "topic-00042-x"))) == 1
    assert len(table._lengths[TOPIC]) == 1
