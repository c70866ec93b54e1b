"""Name resolution: every identifier of a query is a column, an alias, a table or a lambda parameter of that query.

The engine takes a bare name that it cannot resolve for a function (`arrayMap(file, ['/etc/passwd'])`, `current_user`)
or, after IN, for a table. A name that the query does not define is therefore refused before the engine sees it.

Most names are looked up in the query as a whole: at worst the engine reports them itself. Names of functions that may
not be called are looked up as the engine does, in their own SELECT and the output columns of its sources. What the
lookup cannot follow (`*`, a rename of the name to itself) does not count as a definition.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tidemill.sql.core.errors import SqlRefused
from tidemill.sql.core.syntax_tree import Node, arguments, name_parts, walk

TABLE_FUNCTION_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "generate_series": ("generate_series",),
    "generateseries": ("generate_series",),
    "numbers": ("number",),
    "numbers_mt": ("number",),
    "zeros": ("zero",),
}
"""The table functions that may be used, and their columns."""
_ALL = "all"
"""What the parser makes of ORDER BY ALL."""
DEPTH_MAX = 32
"""Subqueries that a name is followed through; WITH RECURSIVE would lead in circles."""

Columns = Mapping[str, tuple[str, ...]]
"""The columns of each table."""


def check_names(tree: Node, tables: Columns, is_forbidden: Callable[[str], bool]) -> None:
    """Refuse a name that the query does not define; `is_forbidden` names functions that may not be called."""
    known = _names_in(tree, tables)
    lookup = _Lookup(tree, is_forbidden)
    for node, scope in _scoped(tree, _Scope(None, frozenset())):
        if node["type"] != "Identifier" or _is_order_by_all(node, scope):
            continue
        parts = name_parts(node)
        if parts[0] not in known or (len(parts) == 1 and is_forbidden(parts[0]) and not lookup.finds(parts[0], scope)):
            raise SqlRefused(
                f"there is no column, alias or lambda parameter {parts[0]}; "
                "write text in single quotes, and call a function with parentheses"
            )


class _Scope(NamedTuple):
    """The SELECT that a node is part of, and the parameters of the lambdas around it."""

    select: Node | None
    parameters: frozenset[str]


class _Lookup:
    """Looks up names of functions that may not be called, as columns or aliases of one SELECT."""

    def __init__(self, tree: Node, is_forbidden: Callable[[str], bool]) -> None:
        self._with = {node["name"]: node for node, _, _ in walk(tree) if node["type"] == "WithElement"}
        self._is_forbidden = is_forbidden

    def finds(self, name: str, scope: _Scope) -> bool:
        """Whether the engine is certain to find a column, alias or parameter of this name."""
        return name in scope.parameters or (scope.select is not None and self._in_select(scope.select, name, 0))

    def _in_select(self, select: Node, name: str, depth: int) -> bool:
        if depth > DEPTH_MAX:
            return False
        if any(each.get("alias") == name and self._is_value(each) for each in _expressions(select)):
            return True
        return any(self._in_source(each, name, depth) for each in _sources(select))

    def _is_value(self, node: Node) -> bool:
        return node["type"] != "Identifier" or not self._is_forbidden(name_parts(node)[-1])

    def _in_source(self, expression: Node, name: str, depth: int) -> bool:
        """Whether a subquery in FROM has an output column of this name."""
        if expression.get("column_aliases"):
            return any(each.get("name") == name for each in expression["column_aliases"].get("children", []))
        table = expression.get("database_and_table_name") or {}
        subquery = expression.get("subquery") or self._with.get(table.get("name", ""))
        select = None if subquery is None else _first_select(subquery)
        return select is not None and any(
            self._shows(each, name, select, depth) for each in (select.get("select") or {}).get("children", [])
        )

    def _shows(self, shown: Node, name: str, select: Node, depth: int) -> bool:
        if shown["type"] != "Identifier":
            return bool(shown.get("alias") == name)
        source = name_parts(shown)[-1]
        if shown.get("alias", source) != name:
            return False
        return self._is_value(shown) or self._in_select(select, source, depth + 1)


def _sources(select: Node) -> Iterator[Node]:
    for element in (select.get("tables") or {}).get("children", []):
        if "table_expression" in element:
            yield element["table_expression"]


def _first_select(node: Node) -> Node | None:
    """The SELECT that names the output columns: the first one of a union."""
    return next((each for each, _, _ in walk(node) if each["type"] == "SelectQuery"), None)


def _expressions(select: Node) -> Iterator[Node]:
    """Nodes of a SELECT without those of its subqueries, lambdas and tables: the alias of a table is no value."""
    waiting: list[Any] = [each for name, each in select.items() if name != "type"]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting += found
        elif isinstance(found, dict):
            if "type" in found:
                yield found
            if found.get("type") not in {"Subquery", "SelectQuery", "SelectWithUnionQuery"} and not _is_lambda(found):
                waiting += [each for name, each in found.items() if name != "table_expression"]


def _scoped(tree: Any, scope: _Scope) -> Iterator[tuple[Node, _Scope]]:
    """Every node with its scope, without lambda parameters where they are declared."""
    waiting: list[tuple[Any, _Scope]] = [(tree, scope)]
    while waiting:
        found, scope = waiting.pop()
        if isinstance(found, list):
            waiting += [(each, scope) for each in found]
        elif isinstance(found, dict):
            if "type" in found:
                yield found, scope
            if _is_lambda(found):
                inner = _Scope(scope.select, scope.parameters | frozenset(_parameters(found)))
                waiting += [(each, inner) for each in arguments(found)[1:]]
                continue
            if found.get("type") == "SelectQuery":
                scope = _Scope(found, scope.parameters)
            waiting += [(each, scope) for each in found.values()]


def _is_lambda(node: Node) -> bool:
    return node.get("type") == "Function" and node.get("name") == "lambda"


def _parameters(function: Node) -> list[str]:
    declared = arguments(function)[:1]
    listed = arguments(declared[0]) if declared and declared[0]["type"] == "Function" else declared
    if any(each["type"] != "Identifier" or len(name_parts(each)) > 1 for each in listed):
        raise SqlRefused("parameters of a lambda are plain names: x -> x + 1, or (x, y) -> x + y")
    return [each["name"] for each in listed]


def _is_order_by_all(node: Node, scope: _Scope) -> bool:
    return node.get("name") == _ALL and bool(scope.select and scope.select.get("order_by_all"))


def _names_in(tree: Node, tables: Columns) -> frozenset[str]:
    """Every name that the query defines somewhere."""
    found: set[str] = set()
    for node, _, role in walk(tree):
        if node.get("alias"):
            found.add(node["alias"])
        if node["type"] in {"WithElement", "WindowListElement", "ColumnsReplaceTransformerReplacement"}:
            found.add(node["name"])
        elif node["type"] == "TableIdentifier":
            found.update((node["name"], *tables.get(node["name"], ())))
        elif node["type"] == "Function" and role == "table_function":
            found.update((node["name"], *TABLE_FUNCTION_COLUMNS.get(node["name"].lower(), ())))
        elif node["type"] == "TableExpression" and node.get("column_aliases"):
            found.update(each["name"] for each in node["column_aliases"].get("children", []) if "name" in each)
        elif _is_lambda(node):
            found.update(_parameters(node))
    return frozenset(found)
