"""Places the datasets of a pipeline: columns from left to right, and rows inside a column, so that few lines cross.

A dataset is in the column after the last of those that it reads. Datasets are in an order in which each reads only
earlier ones, which the broker has checked.
"""

from collections.abc import Sequence
from typing import NamedTuple

SWEEPS = 4
"""How often the rows are sorted by their neighbours, in turns from the left and from the right."""


class GraphPlace(NamedTuple):
    """The place of one dataset. Rows may be fractions: columns with fewer datasets are centred."""

    column: int
    row: float


def layout(reads: Sequence[Sequence[int]]) -> list[GraphPlace]:
    """The place of each dataset, from the places in the list of those that it reads."""
    columns = _columns(reads)
    readers: list[list[int]] = [[] for _ in reads]
    for node, sources in enumerate(reads):
        for source in sources:
            readers[source].append(node)
    stacks: list[list[int]] = [[] for _ in range(max(columns, default=-1) + 1)]
    for node, column in enumerate(columns):
        stacks[column].append(node)
    for sweep in range(SWEEPS):
        _sort(stacks if sweep % 2 == 0 else stacks[::-1], reads if sweep % 2 == 0 else readers)
    tallest = max(map(len, stacks), default=0)
    places: dict[int, GraphPlace] = {}
    for column, stack in enumerate(stacks):
        top = (tallest - len(stack)) / 2
        places |= {node: GraphPlace(column, top + row) for row, node in enumerate(stack)}
    return [places[node] for node in range(len(reads))]


def _columns(reads: Sequence[Sequence[int]]) -> list[int]:
    columns: list[int] = []
    for sources in reads:
        columns.append(max((columns[source] + 1 for source in sources), default=0))
    return columns


def _sort(stacks: Sequence[list[int]], neighbours: Sequence[Sequence[int]]) -> None:
    """Sort each column by the mean row of its neighbours in the columns before; others keep their row."""
    rows: dict[int, float] = {}
    for stack in stacks:
        wanted = _spread(stack)
        for node in stack:
            known = [rows[each] for each in neighbours[node] if each in rows]
            if known:
                wanted[node] = sum(known) / len(known)
        stack.sort(key=wanted.__getitem__)
        rows |= _spread(stack)


def _spread(stack: Sequence[int]) -> dict[int, float]:
    """The rows of a column from 0 to 1, so that columns of different heights can be compared."""
    return {node: (row + 0.5) / len(stack) for row, node in enumerate(stack)}
