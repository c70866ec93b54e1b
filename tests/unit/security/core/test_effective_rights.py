"""An explanation of rights says the same as the decision, and names the ACLs that decide."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tidemill.security.core.acl_table import AclTable
from tidemill.security.core.acls import SUPPORTED, AclBinding, AclFilter
from tidemill.security.core.effective_rights import explain_rights
from tidemill.security.core.resources import Operation, PatternType, Permission, ResourceType

TOPIC = ResourceType.TOPIC
ALLOW = AclBinding(TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
BINDINGS = st.builds(
    AclBinding,
    st.just(TOPIC),
    st.sampled_from(["orders", "ord", "o", "*", "other"]),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", "10.0.0.7", "10.0.0.8"]),
    st.sampled_from([Operation.ALL, *sorted(SUPPORTED[TOPIC])]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


@given(st.lists(BINDINGS, max_size=12), st.sampled_from(["*", "10.0.0.7"]), st.sampled_from(["orders", "*", "x"]))
def test_an_explanation_agrees_with_the_decision(bindings: list[AclBinding], host: str, name: str) -> None:
    table = AclTable(bindings)
    decided = table.decide("User:alice", host, TOPIC, name).operations
    explained = explain_rights(table, "User:alice", host, TOPIC, name)
    for verdict in explained.verdicts:
        assert verdict.is_allowed == bool(decided >> verdict.operation & 1)
        wanted = Permission.ALLOW if verdict.is_allowed else Permission.DENY
        assert all(each.permission is wanted and each.host in {host, "*"} for each in verdict.reasons)
        assert bool(verdict.reasons) or not verdict.is_allowed
    assert all(each.host not in {host, "*"} and each.principal != "User:bob" for each in explained.elsewhere)


@given(st.lists(BINDINGS, max_size=12), st.sampled_from(["orders", "*", "x", "o"]))
def test_the_bindings_about_a_name_are_those_of_the_filter(bindings: list[AclBinding], name: str) -> None:
    table = AclTable(bindings)
    assert sorted(table.about(TOPIC, name)) == sorted(table.find(AclFilter(TOPIC, name, PatternType.MATCH)))
    assert table.counts() == Counter(each.principal for each in set(bindings))
    assert sorted(table) == sorted(set(bindings))


def test_the_deciding_acls_are_named() -> None:
    deny = ALLOW._replace(principal="User:*", permission=Permission.DENY)
    far = ALLOW._replace(host="10.0.0.7", operation=Operation.WRITE)
    found = explain_rights(AclTable([ALLOW, deny, far]), "User:alice", "*", TOPIC, "orders")
    reasons = {each.operation: (each.is_allowed, each.reasons) for each in found.verdicts}
    assert reasons[Operation.READ] == (False, (deny,))
    assert reasons[Operation.DESCRIBE] == (True, (ALLOW,))
    assert reasons[Operation.WRITE] == (False, ())
    assert found.elsewhere == (far,)
