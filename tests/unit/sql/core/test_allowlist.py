"""What may be asked, decided on trees: every node has to be on a list, and names mean what they say."""

from typing import Any

import pytest

from tidemill.sql.core.allowlist import KnownFunction, Reference, Vocabulary, check
from tidemill.sql.core.errors import SqlRefused
from tidemill.sql.core.pruning import columns_in, wanted

COLUMNS = ("topic", "partition", "offset", "timestamp", "value")
TABLES = {"messages": (*COLUMNS, "key"), "partitions": ("topic", "partition", "end_offset")}
VOCABULARY = Vocabulary(
    [
        KnownFunction("sum", "", aggregates=True, alias_to="", is_own=True),
        KnownFunction("tuple", "Tuple", aggregates=False, alias_to="", is_own=True),
        KnownFunction("plus", "Arithmetic", aggregates=False, alias_to="", is_own=True),
        KnownFunction("equals", "Comparison", aggregates=False, alias_to="", is_own=True),
        KnownFunction("in", "Comparison", aggregates=False, alias_to="", is_own=True),
        KnownFunction("and", "Logical", aggregates=False, alias_to="", is_own=True),
        KnownFunction("add", "", aggregates=False, alias_to="plus", is_own=True),
        KnownFunction("file", "Other", aggregates=False, alias_to="", is_own=True),
        KnownFunction("FILE", "Arithmetic", aggregates=False, alias_to="", is_own=True),
        KnownFunction("readIt", "", aggregates=False, alias_to="file", is_own=True),
        KnownFunction("mine", "Arithmetic", aggregates=False, alias_to="", is_own=False),
        KnownFunction("aiGenerate", "AI", aggregates=False, alias_to="", is_own=True),
    ],
    ["If", "Array", "OrNull"],
)
Node = dict[str, Any]


def identifier(*parts: str) -> Node:
    return {"type": "Identifier", "name": ".".join(parts), **({"name_parts": list(parts)} if len(parts) > 1 else {})}


def literal(value: Any) -> Node:
    kind = {str: "String", int: "UInt64", list: "Array"}[type(value)]
    inner = [literal(each)["value"] for each in value] if isinstance(value, list) else value
    return {"type": "Literal", "value": {"field_type": kind, "value": inner}}


def function(name: str, *arguments: Node) -> Node:
    return {"type": "Function", "name": name, "arguments": {"type": "ExpressionList", "children": list(arguments)}}


def table(*parts: str, **more: Any) -> Node:
    named = {"type": "TableIdentifier", "name": ".".join(parts)} | ({"name_parts": parts} if len(parts) > 1 else {})
    return {"type": "TableExpression", "database_and_table_name": named, **more}


def select(*shown: Node, source: Node | None = None, **more: Any) -> Node:
    element = {"type": "TablesInSelectQueryElement", "table_expression": source or table("messages")}
    query = {
        "type": "SelectQuery",
        "select": {"type": "ExpressionList", "children": list(shown)},
        "tables": {"type": "TablesInSelectQuery", "children": [element]},
        **more,
    }
    return {"type": "SelectWithUnionQuery", "list_of_selects": {"type": "ExpressionList", "children": [query]}}


def asked(tree: Node) -> list[Reference]:
    return check(tree, VOCABULARY, TABLES)


@pytest.mark.parametrize("name", ["sum", "SUM", "sumIf", "sumIfOrNull", "sumArrayIf", "plus", "add"])
def test_functions_that_compute(name: str) -> None:
    assert VOCABULARY.allows(name)


@pytest.mark.parametrize("name", ["file", "FILE", "readIt", "mine", "aiGenerate", "unheardOf", "If", "fileIf", ""])
def test_functions_that_do_more(name: str) -> None:
    assert not VOCABULARY.allows(name)
    with pytest.raises(SqlRefused, match="is not allowed"):
        asked(select(function(name)))


@pytest.mark.parametrize(
    "tree",
    [
        {"type": "DropQuery"},
        {"type": "ExplainQuery", "query": select(literal(1))},
        {**select(literal(1)), "out_file": literal("x")},
        {**select(literal(1)), "format_ast": identifier("CSV")},
        select(literal(1), settings={"type": "SetQuery"}),
        select({"type": "QueryParameter", "name": "p"}),
        select({"type": "ColumnsApplyTransformer", "func_name": "file"}),
        select(literal(1), source=table("system", "tables")),
        select(literal(1), source=table("nothing")),
        select(literal(1), source=table("messages", final=True)),
        select(literal(1), source={"type": "TableExpression", "table_function": function("url", literal("x"))}),
        select(function("in", identifier("topic"), identifier("system", "tables"))),
        select(function("in", identifier("topic"), identifier("topic"))),
        select(function("plus", identifier("topic"), identifier("unheard_of"))),
        select(identifier("file")),
        select({**identifier("file"), "alias": "file"}),
        select(function("lambda", function("tuple", literal(1)), literal(1))),
    ],
)
def test_what_has_no_place(tree: Node) -> None:
    with pytest.raises(SqlRefused):
        asked(tree)


def test_a_name_in_with_does_not_hide_a_table() -> None:
    hiding = {"type": "WithElement", "name": "messages", "subquery": select(literal(1))}
    with pytest.raises(SqlRefused, match="hides the table"):
        asked(select(literal(1), **{"with": hiding}))
    own = {"type": "WithElement", "name": "mine", "subquery": select(literal(1))}
    assert [each.table for each in asked(select(literal(1), source=table("mine"), **{"with": own}))] == ["messages"]


def alias(node: Node, name: str) -> Node:
    return {**node, "alias": name}


def subquery(*shown: Node) -> Node:
    return {"type": "TableExpression", "subquery": {"type": "Subquery", "children": [select(*shown)]}}


@pytest.mark.parametrize(
    "tree",
    [
        select(alias(function("plus"), "file"), group_by={"type": "ExpressionList", "children": [identifier("file")]}),
        select(function("plus", identifier("file")), source=subquery(alias(literal(1), "file"))),
        select(function("lambda", function("tuple", identifier("file")), function("plus", identifier("file")))),
        select(identifier("messages", "topic"), identifier("headers", "key"), alias(literal(1), "headers")),
    ],
)
def test_names_that_the_query_defines(tree: Node) -> None:
    assert asked(tree) is not None


@pytest.mark.parametrize(
    "tree",
    [
        select(function("plus", identifier("file")), source=subquery({"type": "Asterisk"})),
        select(function("plus", identifier("file"), function("lambda", identifier("file"), literal(1)))),
        select(
            function("plus", identifier("file")), where=function("in", literal(1), subquery(literal(1))["subquery"])
        ),
        select(identifier("file"), where=function("in", literal(1), subquery(alias(literal(1), "file"))["subquery"])),
    ],
)
def test_a_function_is_not_a_name(tree: Node) -> None:
    """A name that only another part of the query defines is a function for the engine."""
    with pytest.raises(SqlRefused, match="column, alias or lambda parameter file does not exist"):
        asked(tree)


def test_a_near_miss_is_told() -> None:
    with pytest.raises(SqlRefused, match="did you mean partitions"):
        asked(select(literal(1), source=table("partition")))


def test_a_reference_is_replaced_by_rows() -> None:
    tree = select(literal(1))
    (reference,) = asked(tree)
    reference.replace({"type": "SelectWithUnionQuery"})
    expression = tree["list_of_selects"]["children"][0]["tables"]["children"][0]["table_expression"]
    assert expression["subquery"]["alias"] == "messages"
    assert "database_and_table_name" not in expression


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
