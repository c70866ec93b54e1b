"""Which ACLs a description means."""

import pytest

from tidemill.security.core.acl_selection import (
    AclSelection,
    InvalidSelection,
    SelectionProblem,
    parse_hosts,
    parse_operations,
    parse_principals,
    parse_resources,
)
from tidemill.security.core.acls import AclBinding
from tidemill.security.core.resources import Operation, PatternType, Permission, ResourceType

ORDERS = parse_resources(["orders"], [], [], cluster=False, prefix=False)
MAILER = parse_resources([], ["mailer"], [], cluster=False, prefix=False)
ALICE = parse_principals(["alice", "User:alice"])


def test_a_consumer_reads_topics_and_its_group() -> None:
    found = AclSelection(ALICE, (*ORDERS, *MAILER), consumer=True).bindings()
    assert [(each.resource_type, each.operation, each.principal) for each in found] == [
        (ResourceType.TOPIC, Operation.READ, "User:alice"),
        (ResourceType.TOPIC, Operation.DESCRIBE, "User:alice"),
        (ResourceType.GROUP, Operation.READ, "User:alice"),
    ]


def test_operations_may_be_spelled_as_in_kafka() -> None:
    assert parse_operations(["DescribeConfigs, alter-configs", "ALL"]) == (
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.ALL,
    )


def test_hosts_have_their_shortest_form() -> None:
    assert parse_hosts(["2001:0DB8::0007", "*", "2001:db8::7"]) == ("2001:db8::7", "*")


def test_a_prefix_makes_prefixed_patterns() -> None:
    [found] = parse_resources(["pub."], [], [], cluster=False, prefix=True)
    assert found.pattern is PatternType.PREFIXED


def test_an_acl_is_selected_when_every_given_part_fits() -> None:
    binding = AclBinding(
        ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "10.0.0.1", Operation.READ, Permission.ALLOW
    )
    fitting = [
        AclSelection((), ()),
        AclSelection(ALICE, ORDERS, operations=(Operation.READ,), hosts=("10.0.0.1",), permission=Permission.ALLOW),
        AclSelection((), (), hosts=("10.0.0.2", "10.0.0.1")),
        AclSelection((), (), consumer=True),
        AclSelection((), (), permission=Permission.ANY),
    ]
    assert [selection.selects(binding) for selection in fitting] == [True] * len(fitting)
    others = [
        AclSelection(parse_principals(["bob"]), ()),
        AclSelection((), MAILER),
        AclSelection((), parse_resources(["orders"], [], [], cluster=False, prefix=True)),
        AclSelection((), (), operations=(Operation.WRITE,)),
        AclSelection((), (), producer=True),
        AclSelection((), (), hosts=("10.0.0.2",)),
        AclSelection((), (), permission=Permission.DENY),
    ]
    assert [selection.selects(binding) for selection in others] == [False] * len(others)


@pytest.mark.parametrize(
    ("selection", "problem"),
    [
        (AclSelection(ALICE, (), producer=True), SelectionProblem.NO_RESOURCE),
        (AclSelection(ALICE, ORDERS), SelectionProblem.NO_OPERATION),
        (AclSelection(ALICE, MAILER, consumer=True), SelectionProblem.CONSUMER_WITHOUT_TOPIC),
        (AclSelection(ALICE, MAILER, producer=True), SelectionProblem.PRODUCER_WITHOUT_TOPIC),
        (
            AclSelection(ALICE, ORDERS, producer=True, permission=Permission.DENY),
            SelectionProblem.DENIED_PRESET,
        ),
    ],
)
def test_a_missing_part_is_named(selection: AclSelection, problem: SelectionProblem) -> None:
    with pytest.raises(InvalidSelection) as caught:
        selection.bindings()
    assert caught.value.problem is problem


def test_the_sentence_of_an_error_is_its_own_or_that_of_its_problem() -> None:
    problem = SelectionProblem.NO_USER
    assert str(InvalidSelection(problem)) == problem.value
    assert str(InvalidSelection(None, "its own")) == "its own"
    assert str(InvalidSelection(problem, "its own")) == "its own"
    assert InvalidSelection(problem).problem is problem
