"""The authorizer: cached decisions, super users, and resources without ACLs."""

import pytest

from tidemill.security.authorizer import DECISIONS_MAX, Authorizer
from tidemill.security.core.acl_table import AclTable
from tidemill.security.core.acls import SUPPORTED_BITS, AclBinding
from tidemill.security.core.principal import Principal, user
from tidemill.security.core.resources import Operation, PatternType, Permission, ResourceType

TOPIC = ResourceType.TOPIC
ALICE, ROOT = user("alice"), user("root")
HOST = "10.0.0.1"
READ = AclBinding(TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)


def authorizer(*bindings: AclBinding, everyone: bool = False, enabled: bool = True) -> Authorizer:
    made = Authorizer(lambda who: who == ROOT, is_enabled=enabled, allow_everyone_if_no_acl_found=everyone)
    made.set_table(AclTable(bindings))
    return made


def allows(each: Authorizer, operation: Operation, name: str = "orders", who: Principal = ALICE) -> bool:
    first = each.allows(who, HOST, operation, TOPIC, name)
    assert each.allows(who, HOST, operation, TOPIC, name) is first  # from the cache
    return first


def test_default_is_to_deny() -> None:
    assert allows(authorizer(READ), Operation.READ)
    assert allows(authorizer(READ), Operation.DESCRIBE)
    assert not allows(authorizer(READ), Operation.WRITE)
    assert not allows(authorizer(READ), Operation.READ, "payments")
    assert not allows(authorizer(READ), Operation.READ, who=user("bob"))


@pytest.mark.parametrize("topic", ["__waiting", "__pipelines"])
def test_only_super_users_read_what_concerns_all_topics(topic: str) -> None:
    every = READ._replace(name="*", operation=Operation.ALL)
    deny = READ._replace(permission=Permission.DENY)
    for each in (authorizer(every, deny), authorizer(READ._replace(name=topic)), authorizer(everyone=True)):
        assert not allows(each, Operation.READ, topic)
        assert not each.operations(ALICE, HOST, TOPIC, topic) >> Operation.READ & 1
        assert allows(each, Operation.READ, topic, who=ROOT)
    assert allows(authorizer(every), Operation.DESCRIBE, topic)
    assert allows(authorizer(every), Operation.READ, "__consumer_offsets")
    assert allows(authorizer(enabled=False), Operation.READ, topic)


def test_super_user_may_do_everything_also_against_a_deny() -> None:
    deny = READ._replace(principal="User:*", operation=Operation.ALL, permission=Permission.DENY)
    each = authorizer(deny)
    assert allows(each, Operation.WRITE, who=ROOT)
    assert each.operations(ROOT, HOST, TOPIC, "orders") == SUPPORTED_BITS[TOPIC]
    assert each.allows_anywhere(ROOT, HOST, Operation.WRITE, TOPIC)


def test_a_former_super_user_is_rejected_at_once() -> None:
    supers = {ALICE}
    each = Authorizer(supers.__contains__)
    assert allows(each, Operation.WRITE)
    supers.clear()
    assert not allows(each, Operation.WRITE)


def test_everyone_is_allowed_only_where_no_acl_is() -> None:
    each = authorizer(READ, everyone=True)
    assert allows(each, Operation.WRITE, "payments", user("bob"))
    assert not allows(each, Operation.READ, "orders", user("bob"))
    assert not allows(each, Operation.WRITE)
    assert each.allows_anywhere(user("bob"), HOST, Operation.WRITE, TOPIC)


def test_new_acls_count_at_once() -> None:
    each = authorizer(READ)
    assert allows(each, Operation.READ)
    each.set_table(AclTable())
    assert not allows(each, Operation.READ)
    assert not each.allows_anywhere(ALICE, HOST, Operation.READ, TOPIC)
    each.set_table(AclTable([READ]))
    assert allows(each, Operation.READ)
    assert each.allows_anywhere(ALICE, HOST, Operation.READ, TOPIC)


def test_operations_are_those_of_the_resource_type() -> None:
    each = authorizer(READ, READ._replace(name="all", operation=Operation.ALL))
    assert each.operations(ALICE, HOST, TOPIC, "orders") == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert each.operations(ALICE, HOST, TOPIC, "all") == SUPPORTED_BITS[TOPIC]
    assert each.operations(ALICE, HOST, TOPIC, "other") == 0
    assert (
        authorizer(enabled=False).operations(ALICE, HOST, ResourceType.GROUP, "g") == SUPPORTED_BITS[ResourceType.GROUP]
    )


def test_without_an_authorizer_everything_is_allowed() -> None:
    assert allows(authorizer(enabled=False), Operation.WRITE)


def test_cache_is_bounded_and_takes_no_long_names() -> None:
    each = authorizer(READ)
    for number in range(DECISIONS_MAX + 10):
        each.allows(ALICE, HOST, Operation.READ, TOPIC, f"t{number}")
    assert len(each._decisions[TOPIC]) == 10
    assert not allows(each, Operation.READ, "x" * 301)
    assert len(each._decisions[TOPIC]) == 10


def test_a_loss_of_rights_is_known_before_the_change() -> None:
    alter = AclBinding(
        ResourceType.CLUSTER,
        "kafka-cluster",
        PatternType.LITERAL,
        "User:alice",
        "*",
        Operation.ALTER,
        Permission.ALLOW,
    )
    deny = alter._replace(principal="User:*", operation=Operation.DESCRIBE, permission=Permission.DENY)
    each = authorizer(alter)
    assert each.lost_operations(ALICE, HOST, [], [alter]) == 1 << Operation.ALTER | 1 << Operation.DESCRIBE
    assert each.lost_operations(ALICE, HOST, [deny], []) == 1 << Operation.DESCRIBE
    assert each.lost_operations(ALICE, HOST, [READ], []) == 0
    assert each.lost_operations(ROOT, HOST, [deny], [alter]) == 0
    assert authorizer(enabled=False).lost_operations(ALICE, HOST, [deny], []) == 0
    # The first ACL on the cluster ends the rights that everyone had without one.
    everyone = authorizer(everyone=True)
    assert everyone.lost_operations(user("bob"), HOST, [alter], []) == SUPPORTED_BITS[ResourceType.CLUSTER]
    assert everyone.lost_operations(user("bob"), HOST, [], []) == 0
