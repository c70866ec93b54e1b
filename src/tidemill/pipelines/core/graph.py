"""Which views a transformation reads, and the order in which views can be made; what is no transformation."""

import ast
import re
from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter

from tidemill.pipelines.core.spec import WrongSpec

_NOT_NAMES = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'", re.DOTALL)
_TABLES = re.compile(
    r"\b(?:from|join)\b([\w\s.,`]+?)(?=\bwhere\b|\bgroup\b|\bjoin\b|\bon\b|\bselect\b|[^\w\s.,`]|$)", re.IGNORECASE
)
"""What stands behind FROM and JOIN: names, commas and aliases."""
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUERIES = frozenset({"select", "with", "from", "values", "table", "map", "reduce"})
"""How a query begins; every other statement does something."""
_INSERT = re.compile(r"\binsert\s+(?:into|overwrite)\b", re.IGNORECASE)
"""It may stand behind WITH or FROM."""


def views_in_sql(text: str, views: Collection[str], *, strict: bool = False) -> set[str]:
    """The views that a query names; a column of the same name counts too, unless only FROM and JOIN shall count."""
    plain = _NOT_NAMES.sub(" ", text)
    found = " ".join(_TABLES.findall(plain)) if strict else plain
    words = {word.lower() for word in _WORD.findall(found)}
    return {view for view in views if view.lower() in words}


def check_query(file: str, text: str) -> None:
    """Refuse what Spark would do at once, and every time that the pipeline starts, instead of reading rows."""
    plain = _NOT_NAMES.sub(" ", text)
    first = _WORD.search(plain)
    if first is None:
        raise WrongSpec(f"{file}: there is no query in it")
    told = "INSERT" if _INSERT.search(plain) else first[0].upper()
    if told.lower() not in _QUERIES:
        raise WrongSpec(
            f"{file}: {told} is not possible here: a transformation is one query, SELECT or WITH ... SELECT"
        )


def parameters(file: str, text: str, function: str) -> tuple[str, ...]:
    """The parameters of a function in a Python file."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise WrongSpec(f"{file}: line {error.lineno} is not Python: {error.msg}") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if function not in functions:
        raise WrongSpec(f"{file}: there is no function {function}; it must have the name of the transformation")
    return tuple(argument.arg for argument in functions[function].args.args)


def check_parameters(file: str, function: str, names: Collection[str], views: Collection[str]) -> None:
    """Refuse parameters that are not views."""
    for name in names:
        if name not in views:
            raise WrongSpec(f"{file}: {function}({name}): there is no view {name}; there are {', '.join(views)}")


def in_order(file: str, reads: Mapping[str, Collection[str]]) -> list[str]:
    """The transformations so that each comes after those that it reads; WrongSpec when they read each other."""
    graph = {name: [view for view in views if view in reads and view != name] for name, views in reads.items()}
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise WrongSpec(f"{file}: transformations read each other: {' -> '.join(error.args[1])}") from None
