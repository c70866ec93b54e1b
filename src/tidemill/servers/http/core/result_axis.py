"""The horizontal axis of a chart of a query's result: times and numbers have their distance, other labels have none."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import NamedTuple


class ResultAxis(NamedTuple):
    """Where the rows of a result are on the axis."""

    order: list[int]
    """The rows from left to right."""
    places: list[float]
    """The place of each of them, from 0 to 1."""


def result_axis(labels: Sequence[str]) -> ResultAxis:
    """The axis for these labels. Labels that are no times or numbers stay in the order of the query."""
    known = _parsed(labels, _number) or _parsed(labels, _time_s)
    if known is None:
        last = max(1, len(labels) - 1)
        return ResultAxis(list(range(len(labels))), [at / last for at in range(len(labels))])
    order = sorted(range(len(labels)), key=known.__getitem__)
    first, span = known[order[0]], known[order[-1]] - known[order[0]]
    return ResultAxis(order, [(known[at] - first) / span if span else 0.0 for at in order])


def _parsed(labels: Sequence[str], parse: Callable[[str], float]) -> list[float] | None:
    try:
        return [parse(each) for each in labels]
    except ValueError:
        return None


def _number(label: str) -> float:
    value = float(label)
    if not isfinite(value):
        raise ValueError(label)
    return value


def _time_s(label: str) -> float:
    """The seconds of a date or a time as the engine writes it. Only differences count, so its zone does not matter."""
    return datetime.fromisoformat(label).replace(tzinfo=UTC).timestamp()
