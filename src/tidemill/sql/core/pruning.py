"""Which rows and columns a question can need at most, so that nothing else is read from files.

Only what is certain counts: a condition that holds for every row of the answer, on a column that means what its name
says. Everything else reads more than needed, which the engine then leaves out itself.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tidemill.sql.core.allowlist import Reference
from tidemill.sql.core.syntax_tree import Node, arguments, constants, is_function, name_parts, walk

_MATCHERS = frozenset(
    {
        "Asterisk",
        "ColumnsListMatcher",
        "ColumnsRegexpMatcher",
        "QualifiedAsterisk",
        "QualifiedColumnsRegexpMatcher",
    }
)


class NeededRows(NamedTuple):
    """What is needed of a table at most; None is everything. `since` is the tree of the first time of interest."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    since: Node | None = None
    first_offset: int = 0
    end_offset: int | None = None

    def has(self, topic: str, partition: int) -> bool:
        """Whether records of a partition are needed."""
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def columns_in(tree: Node, columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that a question may use, in their order."""
    used: set[str] = set()
    for node, _, _ in walk(tree):
        if node["type"] in _MATCHERS:
            return tuple(columns)
        if node["type"] == "Identifier":
            used.update(name_parts(node))
    return tuple(each for each in columns if each in used)


def wanted(tree: Node, reference: Reference) -> NeededRows:
    """What the conditions around a reference leave of its table."""
    if len(reference.select["tables"]["children"]) > 1:
        return NeededRows()  # rows of one side may be wanted whatever the other says
    hidden = {node.get("alias") for node, _, _ in walk(tree)} & {"topic", "partition", "offset", "timestamp"}
    if hidden:
        return NeededRows()  # an alias takes the place of the column, also in conditions
    conditions = [each for name in ("prewhere", "where") for each in _all_of(reference.select.get(name))]
    alias = reference.alias
    topics = [found for each in conditions if (found := _among(each, "topic", alias, str)) is not None]
    partitions = [found for each in conditions if (found := _among(each, "partition", alias, int)) is not None]
    sinces = [bound for each in conditions if (bound := _at_least(each, "timestamp", alias)) is not None]
    offsets = [bound for each in conditions if (bound := _at_least(each, "offset", alias)) is not None]
    ends = [bound for each in conditions if (bound := _at_most(each, "offset", alias)) is not None]
    exact = [found for each in conditions if (found := _among(each, "offset", alias, int))]
    return NeededRows(
        frozenset.intersection(*map(frozenset, topics)) if topics else None,
        frozenset.intersection(*map(frozenset, partitions)) if partitions else None,
        sinces[0] if sinces else None,
        max([0, *_numbers(offsets), *map(min, exact)]),
        min((value + 1 for value in (*_numbers(ends), *map(max, exact))), default=None),
    )


def _all_of(condition: Node | None) -> list[Node]:
    if condition is None:
        return []
    if is_function(condition, "and"):
        return [part for each in arguments(condition) for part in _all_of(each)]
    return [condition]


def _among(condition: Node, column: str, alias: str, kind: type) -> list[Any] | None:
    """The values that a column is one of; None when the engine would make them of the column's kind first."""
    if not is_function(condition, "equals", "in") or len(arguments(condition)) != 2:
        return None
    left, right = arguments(condition)
    if is_function(condition, "equals") and _is_column(right, column, alias):
        left, right = right, left
    found = constants(right) if _is_column(left, column, alias) else None
    return found if found is not None and all(isinstance(each, kind) for each in found) else None


def _at_least(condition: Node, column: str, alias: str) -> Node | None:
    """What a column is not below; an expression without columns."""
    if not is_function(condition, "greaterOrEquals", "greater", "lessOrEquals", "less"):
        return None
    told, bound = arguments(condition)
    if is_function(condition, "lessOrEquals", "less"):
        told, bound = bound, told
    if not _is_column(told, column, alias) or any(
        node["type"] in {"Identifier", "Subquery"} for node, _, _ in walk(bound)
    ):
        return None
    return bound


def _at_most(condition: Node, column: str, alias: str) -> Node | None:
    """What a column is not above."""
    if not is_function(condition, "greaterOrEquals", "greater", "lessOrEquals", "less"):
        return None
    told, bound = arguments(condition)
    if is_function(condition, "greaterOrEquals", "greater"):
        told, bound = bound, told
    return bound if _is_column(told, column, alias) else None


def _numbers(bounds: Iterable[Node]) -> list[int]:
    return [value for each in bounds for value in constants(each) or () if isinstance(value, int)]


def _is_column(node: Node, column: str, alias: str) -> bool:
    return node.get("type") == "Identifier" and name_parts(node) in ([column], [alias, column])
