"""Which rows and columns a question can need at most, so that nothing else is read from files.

Only what is certain counts: a condition that holds for every row of the answer, on a column that means what its name
says. Everything else reads more than needed, which the engine then leaves out itself.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidemill.broker.sql.guard import Reference
from tidemill.broker.sql.tree import Node, arguments, constants, is_function, name_parts, walk

_MATCHERS = frozenset(
    {
        "Asterisk",
        "ColumnsListMatcher",
        "ColumnsRegexpMatcher",
        "QualifiedAsterisk",
        "QualifiedColumnsRegexpMatcher",
    }
)


class Wanted(NamedTuple):
    """What is needed of a table at most; None is everything. `since` is the tree of the first time of interest."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    since: Node | None = None


def columns_in(tree: Node, columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that a question may use, in their order."""
    used: set[str] = set()
    for node, _, _ in walk(tree):
        if node["type"] in _MATCHERS:
            return tuple(columns)
        if node["type"] == "Identifier":
            used.update(name_parts(node))
    return tuple(each for each in columns if each in used)


def wanted(tree: Node, reference: Reference) -> Wanted:
    """What the conditions around a reference leave of its table."""
    if len(reference.select["tables"]["children"]) > 1:
        return Wanted()  # rows of one side may be wanted whatever the other says
    hidden = {node.get("alias") for node, _, _ in walk(tree)} & {"topic", "partition", "timestamp"}
    if hidden:
        return Wanted()  # an alias takes the place of the column, also in conditions
    conditions = [each for name in ("prewhere", "where") for each in _all_of(reference.select.get(name))]
    alias = reference.alias
    topics = [found for each in conditions if (found := _among(each, "topic", alias)) is not None]
    partitions = [found for each in conditions if (found := _among(each, "partition", alias)) is not None]
    sinces = [bound for each in conditions if (bound := _since(each, alias)) is not None]
    return Wanted(
        frozenset.intersection(*map(frozenset, topics)) if topics else None,
        frozenset.intersection(*map(frozenset, partitions)) if partitions else None,
        sinces[0] if sinces else None,
    )


def _all_of(condition: Node | None) -> list[Node]:
    if condition is None:
        return []
    if is_function(condition, "and"):
        return [part for each in arguments(condition) for part in _all_of(each)]
    return [condition]


def _among(condition: Node, column: str, alias: str) -> list[Any] | None:
    """The values that a column is one of."""
    if not is_function(condition, "equals", "in") or len(arguments(condition)) != 2:
        return None
    left, right = arguments(condition)
    if is_function(condition, "equals") and _is_column(right, column, alias):
        left, right = right, left
    return constants(right) if _is_column(left, column, alias) else None


def _since(condition: Node, alias: str) -> Node | None:
    """What the time of a row is not before; an expression without columns."""
    if not is_function(condition, "greaterOrEquals", "greater", "lessOrEquals", "less"):
        return None
    time, bound = arguments(condition)
    if is_function(condition, "lessOrEquals", "less"):
        time, bound = bound, time
    if not _is_column(time, "timestamp", alias) or any(
        node["type"] in {"Identifier", "Subquery"} for node, _, _ in walk(bound)
    ):
        return None
    return bound


def _is_column(node: Node, column: str, alias: str) -> bool:
    return node.get("type") == "Identifier" and name_parts(node) in ([column], [alias, column])
