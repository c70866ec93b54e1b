"""The allowlist: a query is checked as a tree, and every node and every name in it must be on a list.

Only a SELECT passes. It may use the tables of the catalog, functions that compute, table functions that generate
numbers, and names that the query defines itself (`names`). Settings, files, formats, parameters and other statements
have no node on the list, so a new feature of the engine is rejected until it is added here. The text that runs is
written from the checked tree, so comments and a second statement do not reach the engine.

This is one layer of several: the engine runs the query in a process that cannot read files (`query_engine`).
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from tidemill.sql.core.errors import SqlRefused
from tidemill.sql.core.names import TABLE_FUNCTION_COLUMNS, Columns, check_names
from tidemill.sql.core.syntax_tree import Node, Visited, arguments, name_parts, walk

NODES = frozenset(
    {
        "ArrayJoin",
        "Asterisk",
        "ColumnsExceptTransformer",
        "ColumnsListMatcher",
        "ColumnsRegexpMatcher",
        "ColumnsReplaceTransformer",
        "ColumnsReplaceTransformerReplacement",
        "ColumnsTransformerList",
        "ExpressionList",
        "Function",
        "Identifier",
        "InterpolateElement",
        "Literal",
        "OrderByElement",
        "QualifiedAsterisk",
        "QualifiedColumnsRegexpMatcher",
        "SelectIntersectExceptQuery",
        "SelectQuery",
        "SelectWithUnionQuery",
        "Subquery",
        "TableExpression",
        "TableIdentifier",
        "TableJoin",
        "TablesInSelectQuery",
        "TablesInSelectQueryElement",
        "WindowDefinition",
        "WindowListElement",
        "WithElement",
    }
)
CATEGORIES = frozenset(
    {
        "Arithmetic",
        "Arrays",
        "Bit",
        "Bitmap",
        "Comparison",
        "Conditional",
        "Dates and Times",
        "Distance",
        "Encoding",
        "Financial",
        "Geo",
        "Geo Polygon",
        "Hash",
        "IP Address",
        "JSON",
        "Logical",
        "Map",
        "Mathematical",
        "Null",
        "NumericIndexedVector",
        "Random Number",
        "Rounding",
        "String",
        "String Replacement",
        "String Search",
        "String Splitting",
        "Time Window",
        "Tuple",
        "Type Conversion",
        "URL",
        "UUID",
    }
)
"""Kinds of functions that only compute, as the engine names them."""
MORE_FUNCTIONS = frozenset(
    {
        "bar",
        "bytesize",
        "casewithexpression",
        "exists",
        "finalizeaggregation",
        "formatreadabledecimalsize",
        "formatreadablequantity",
        "formatreadablesize",
        "formatreadabletimedelta",
        "grouping",
        "identity",
        "ignore",
        "isconstant",
        "lambda",
        "materialize",
        "rownumberinallblocks",
        "runningdifference",
        "throwif",
        "totypename",
        "transform",
        "untuple",
        "version",
        "visiblewidth",
    }
)
"""Functions of mixed kinds that only compute, too."""
LESS_FUNCTIONS = frozenset(
    {
        "aggthrow",
        "chdb",
        "cuttofirstsignificantsubdomaincustom",
        "cuttofirstsignificantsubdomaincustomrfc",
        "cuttofirstsignificantsubdomaincustomwithwww",
        "cuttofirstsignificantsubdomaincustomwithwwwrfc",
        "firstsignificantsubdomaincustom",
        "firstsignificantsubdomaincustomrfc",
        "flamegraph",
        "formatrow",
        "formatrownonewline",
        "globalinignoreset",
        "globalnotinignoreset",
        "globalnotnullinignoreset",
        "globalnullinignoreset",
        "inignoreset",
        "notinignoreset",
        "notnullinignoreset",
        "nullinignoreset",
        "servertimezone",
    }
)
"""Functions of computing kinds that read the engine's configuration, formats or tables, or only test it."""
_MEMBERSHIP = frozenset(
    {"in", "notin", "globalin", "globalnotin", "nullin", "notnullin", "globalnullin", "globalnotnullin"}
)
_ALSO_TABLE_FUNCTIONS = frozenset({"format"})
"""Functions that compute, and whose name is a table function after IN."""


class KnownFunction(NamedTuple):
    """A function as the engine lists it."""

    name: str
    category: str
    aggregates: bool
    alias_to: str
    is_own: bool


class Vocabulary:
    """The engine's functions that may be called."""

    def __init__(self, functions: Iterable[KnownFunction], combinators: Iterable[str]) -> None:
        listed = list(functions)
        by_name: dict[str, list[KnownFunction]] = {}
        for each in listed:
            by_name.setdefault(each.name.lower(), []).append(each)
        self._known = frozenset(by_name)
        self._aggregates = {each.name.lower() for each in listed if each.aggregates and each.is_own} - LESS_FUNCTIONS
        # Some names differ only by case: a name may be called only if it is harmless in every spelling.
        self._allowed = MORE_FUNCTIONS | {
            name for name, found in by_name.items() if all(_only_computes(each, by_name) for each in found)
        }
        self._combinators = [each.lower() for each in combinators]

    def allows(self, name: str) -> bool:
        """Whether a function may be called; `sumIf` is the aggregate `sum` with the combinator `If`."""
        name = name.lower()
        return name in self._allowed or self._is_combined(name)

    def forbids(self, name: str) -> bool:
        """Whether the engine has a function of this name that may not be called."""
        return name.lower() in self._known and not self.allows(name)

    def _is_combined(self, name: str) -> bool:
        endings = [each for each in self._combinators if name.endswith(each) and name != each]
        stems = [name.removesuffix(each) for each in endings]
        return any(stem in self._aggregates or self._is_combined(stem) for stem in stems)


def _only_computes(function: KnownFunction, by_name: Mapping[str, list[KnownFunction]]) -> bool:
    if function.alias_to and function.alias_to.lower() != function.name.lower():
        targets = by_name.get(function.alias_to.lower(), [])
        return bool(targets) and all(_only_computes(each, by_name) for each in targets)
    name = function.name.lower()
    computes = function.aggregates or function.category in CATEGORIES or name in MORE_FUNCTIONS
    return function.is_own and computes and name not in LESS_FUNCTIONS


class Reference(NamedTuple):
    """A place where the query names a table of the catalog."""

    table: str
    expression: Node
    select: Node

    @property
    def alias(self) -> str:
        """The name of the table in the query."""
        found: str = self.expression["database_and_table_name"].get("alias") or self.table
        return found

    def replace(self, source: Node) -> None:
        """Replace it with a subquery that returns the table's rows."""
        subquery = {"type": "Subquery", "alias": self.alias, "children": [source]}
        del self.expression["database_and_table_name"]
        self.expression["subquery"] = subquery


def check(tree: Node, vocabulary: Vocabulary, tables: Columns) -> list[Reference]:
    """Return the tables that a query names. Raises SqlRefused for everything that is not allowed.

    `tables` has the columns of each table.
    """
    if tree.get("type") != "SelectWithUnionQuery":
        raise SqlRefused("only SELECT is allowed; SQL cannot change anything")
    visited = list(walk(tree))
    with_names = frozenset(each.node["name"] for each in visited if each.node["type"] == "WithElement")
    for each in visited:
        _check_node(each, vocabulary)
        _check_membership(each.node, with_names)
    found = references(tree, tables)
    check_names(tree, tables, vocabulary.forbids)
    return found


def references(tree: Node, tables: Iterable[str]) -> list[Reference]:
    """Return the tables of the catalog that a query names. Raises SqlRefused for any other table."""
    visited = list(walk(tree))
    named = _names_of_with(visited, tables := frozenset(tables))
    expressions = [each for each in visited if each.node["type"] == "TableExpression"]
    return [found for each in expressions for found in _references(each, tables, named)]


def _names_of_with(visited: Iterable[Visited], tables: frozenset[str]) -> frozenset[str]:
    named = frozenset(each.node["name"] for each in visited if each.node["type"] == "WithElement")
    for name in sorted(named & tables):
        raise SqlRefused(f"WITH {name} hides the table {name}; choose another name")
    return named


def _check_node(visited: Visited, vocabulary: Vocabulary) -> None:
    node, _, role = visited
    if node["type"] == "SetQuery":
        raise SqlRefused("SETTINGS is not allowed: the broker sets the limits; remove it")
    if node["type"] not in NODES:
        raise SqlRefused(f"{node['type']} is not allowed in a read-only query; remove it")
    if node.get("out_file") or node.get("format_ast"):
        raise SqlRefused(
            "INTO OUTFILE and FORMAT are not allowed; choose a format with --json, --csv or --parquet FILE"
        )
    if node["type"] != "Function":
        return
    if role == "table_function":
        if node["name"].lower() not in TABLE_FUNCTION_COLUMNS:
            allowed = _list(TABLE_FUNCTION_COLUMNS)
            raise SqlRefused(f"table function {node['name']} is not allowed; use one of {allowed}")
    elif not vocabulary.allows(node["name"]):
        raise SqlRefused(f"function {node['name']} is not allowed or does not exist")


def _check_membership(function: Node, with_names: frozenset[str]) -> None:
    """Check the right side of IN: there the engine reads a name as a table, and a function as a table function."""
    if function["type"] != "Function" or function["name"].lower() not in _MEMBERSHIP:
        return
    for each in arguments(function)[1:]:
        is_with_name = (
            each["type"] == "Identifier" and name_parts(each) == [each["name"]] and each["name"] in with_names
        )
        is_function = each["type"] == "Function" and each["name"].lower() not in _ALSO_TABLE_FUNCTIONS
        if not (is_with_name or is_function or each["type"] in {"Literal", "Subquery"}):
            raise SqlRefused(
                f"IN takes a list, a SELECT in parentheses or a name of WITH, not {each.get('name') or each['type']}; "
                "compare with = or has(array, x)"
            )


def _references(visited: Visited, tables: frozenset[str], named: frozenset[str]) -> list[Reference]:
    expression = visited.node
    if expression.get("final"):
        raise SqlRefused("FINAL is not allowed: every row is returned once; remove it")
    identifier = expression.get("database_and_table_name")
    if identifier is None:
        return []
    name = identifier["name"]
    if name not in tables | named or len(name_parts(identifier)) > 1:
        near = get_close_matches(name, tables, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use one of {_list(tables)}"
        raise SqlRefused(f"table {name} does not exist; {hint}")
    if name in named or visited.select is None:
        return []
    return [Reference(name, expression, visited.select)]


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
