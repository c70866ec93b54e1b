"""Syntax trees as ClickHouse prints them."""

from typing import Any

from tidemill.sql.core.allowlist import KnownFunction, Reference, Vocabulary, check

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
