"""Columns, partitions and offsets that a query needs."""

from tests.unit.sql.core.trees import COLUMNS, asked, function, identifier, literal, select, table

from tidemill.sql.core.allowlist import Reference
from tidemill.sql.core.pruning import columns_in, wanted


def test_only_the_columns_that_are_named() -> None:
    assert columns_in(select(identifier("m", "offset")), COLUMNS) == ("offset",)
    assert columns_in(select(function("sum")), COLUMNS) == ()
    assert columns_in(select({"type": "Asterisk"}), COLUMNS) == COLUMNS


def test_only_the_partitions_that_conditions_leave() -> None:
    topic = function("equals", literal("a"), identifier("topic"))
    index = function("in", identifier("messages", "partition"), literal([1, 2]))
    tree = select(identifier("offset"), where=function("and", topic, function("and", index)))
    found = wanted(tree, asked(tree)[0])
    assert (found.topics, found.partitions, found.since) == (frozenset({"a"}), frozenset({1, 2}), None)
    assert [found.has("a", 1), found.has("a", 3), found.has("b", 1)] == [True, False, False]


def test_only_the_offsets_that_conditions_leave() -> None:
    bounds = (
        {"type": "Function", "name": name, "arguments": {"children": [identifier("offset"), literal(at)]}}
        for name, at in (("greater", 5), ("greaterOrEquals", 7), ("less", 9))
    )
    tree = select(identifier("offset"), where=function("and", *bounds))
    reference = Reference("messages", table("messages"), tree["list_of_selects"]["children"][0])
    assert wanted(tree, reference).first_offset == 7


def test_an_alias_that_takes_the_place_of_a_column_is_no_reason_to_read_less() -> None:
    shown = {**identifier("key"), "alias": "topic"}
    tree = select(shown, where=function("equals", identifier("topic"), literal("a")))
    assert wanted(tree, asked(tree)[0]).topics is None


def test_a_condition_on_one_side_of_a_choice_is_no_reason_to_read_less() -> None:
    either = {"type": "Function", "name": "or", "arguments": {"children": [identifier("topic"), literal("a")]}}
    tree = select(identifier("offset"), where=either)
    reference = Reference("messages", table("messages"), tree["list_of_selects"]["children"][0])
    assert wanted(tree, reference).topics is None
