"""The allowlist of queries: every node of the syntax tree must be on it, and every name must be defined."""

import pytest
from tests.unit.sql.core.trees import (
    VOCABULARY,
    Node,
    asked,
    function,
    identifier,
    literal,
    select,
    table,
)

from tidemill.sql.core.allowlist import KnownFunction, Vocabulary
from tidemill.sql.core.errors import SqlRefused


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
def test_an_unlisted_node_is_rejected(tree: Node) -> None:
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


def test_a_recursive_query_that_defines_no_column_is_rejected() -> None:
    itself = {"type": "WithElement", "name": "one", "subquery": select(identifier("file"), source=table("one"))}
    with pytest.raises(SqlRefused, match="column, alias or lambda parameter file does not exist"):
        asked(select(alias(literal(1), "file"), source=table("one"), **{"with": itself}))


def test_a_similar_name_is_suggested() -> None:
    with pytest.raises(SqlRefused, match="did you mean partitions"):
        asked(select(literal(1), source=table("partition")))


def test_a_reference_is_replaced_by_rows() -> None:
    tree = select(literal(1))
    (reference,) = asked(tree)
    reference.replace({"type": "SelectWithUnionQuery"})
    expression = tree["list_of_selects"]["children"][0]["tables"]["children"][0]["table_expression"]
    assert expression["subquery"]["alias"] == "messages"
    assert "database_and_table_name" not in expression


MINE = {"with": {"type": "WithElement", "name": "own", "subquery": select(literal(1))}}


def test_in_takes_a_name_of_with_and_no_other() -> None:
    assert asked(select(function("in", identifier("topic"), identifier("own")), **MINE))
    for other in (identifier("topic"), identifier("own", "topic"), identifier("messages", "topic")):
        with pytest.raises(SqlRefused, match="IN takes a list"):
            asked(select(function("in", identifier("topic"), other), **MINE))


def test_columns_of_a_subquery_may_have_other_names() -> None:
    renamed = {**subquery(literal(1)), "column_aliases": {"children": [{"type": "Identifier", "name": "file"}]}}
    assert asked(select(function("plus", identifier("file")), source=renamed))
    renamed["column_aliases"] = {"children": [{"type": "Identifier", "name": "n"}]}
    assert asked(select(function("plus", identifier("n")), source=renamed))
    with pytest.raises(SqlRefused, match="file does not exist"):
        asked(select(function("plus", identifier("file")), source=renamed))
    with pytest.raises(SqlRefused, match="other does not exist"):
        asked(select(function("plus", identifier("other")), source=renamed))


def test_all_is_a_name_only_where_the_query_is_ordered_by_it() -> None:
    assert asked(select(identifier("topic"), order_by={"children": [identifier("all")]}, order_by_all=True))
    with pytest.raises(SqlRefused, match="all does not exist"):
        asked(select(identifier("topic"), order_by={"children": [identifier("all")]}))
    with pytest.raises(SqlRefused, match="other does not exist"):
        asked(select(identifier("topic"), order_by={"children": [identifier("other")]}, order_by_all=True))


def test_columns_of_a_table_function_have_its_names() -> None:
    numbers = {"type": "TableExpression", "table_function": function("numbers", literal(3))}
    assert asked(select(identifier("number"), source=numbers)) == []
    with pytest.raises(SqlRefused, match="zero does not exist"):
        asked(select(identifier("zero"), source=numbers))


def test_combinators_may_end_alike() -> None:
    known = KnownFunction("sum", "", aggregates=True, alias_to="", is_own=True)
    for order in (["State", "SimpleState"], ["SimpleState", "State"]):
        vocabulary = Vocabulary([known], order)
        assert vocabulary.allows("sumSimpleState")
        assert vocabulary.allows("sumStateSimpleState")
        assert not vocabulary.allows("sumSimple")
