"""Finds which views a transformation reads, puts views in order, and rejects statements that are not queries."""

import ast
import re
from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter

from tidemill.pipelines.spec.core.spec import WrongSpec

_NOT_NAMES = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_TABLES = re.compile(
    r"\b(?:from|join)\b([\w\s.,`]+?)(?=\bwhere\b|\bgroup\b|\bjoin\b|\bon\b|\bselect\b|[^\w\s.,`]|$)", re.IGNORECASE
)
"""The text after FROM and JOIN: names, commas and aliases."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUERIES = frozenset({"select", "with", "from", "values", "table", "map", "reduce"})
"""First words of a query. Every other statement changes something."""
_INSERT = re.compile(r"\binsert\s+(?:into|overwrite)\b", re.IGNORECASE)
"""INSERT may also follow WITH or FROM."""


def views_in_sql(text: str, views: Collection[str], *, strict: bool = False) -> set[str]:
    """The views that a query names.

    A column of the same name counts too, unless `strict` limits this to FROM and JOIN.
    """
    plain = _NOT_NAMES.sub(" ", text)
    found = " ".join(_TABLES.findall(plain)) if strict else plain
    words = {word.lower() for word in _WORD.findall(found)}
    return {view for view in views if view.lower() in words}


def check_query(file: str, text: str) -> None:
    """Refuse a statement that Spark would execute at every start of the pipeline, instead of reading rows."""
    plain = _NOT_NAMES.sub(" ", text)
    first = _WORD.search(plain)
    if first is None:
        raise WrongSpec(f"{file} contains no query; write one SELECT")
    statement = "INSERT" if _INSERT.search(plain) else first[0].upper()
    if statement.lower() not in _QUERIES:
        raise WrongSpec(f"{file}: {statement} is not allowed; a transformation is one query: SELECT or WITH ... SELECT")


def parameters(file: str, text: str, function: str) -> tuple[str, ...]:
    """The parameters of a function in a Python file."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise WrongSpec(f"{file}: line {error.lineno} is not Python: {error.msg}") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if function not in functions:
        raise WrongSpec(f"{file}: function {function} is missing; name it like the transformation")
    return tuple(argument.arg for argument in functions[function].args.args)


def check_parameters(file: str, function: str, names: Collection[str], views: Collection[str]) -> None:
    """Refuse parameters that are not views."""
    for name in names:
        if name not in views:
            raise WrongSpec(f"{file}: {function}({name}): view {name} does not exist; there are {', '.join(views)}")


def in_order(file: str, reads: Mapping[str, Collection[str]]) -> list[str]:
    """The transformations in dependency order. Raises WrongSpec when they read each other."""
    graph = {name: [view for view in views if view in reads and view != name] for name, views in reads.items()}
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise WrongSpec(f"{file}: transformations read each other: {' -> '.join(error.args[1])}") from None
