"""Derives offsets, partitions and times from the filters of a query, so that less is read.

Spark applies every filter again to the rows that it gets. So this need not be exact: an unknown filter is ignored. The
invariant is that the rows that are read include all rows that the filters accept.

- `topic` and `partition` are the same for all records of a partition. Partitions that do not match are not read.
- `offset` narrows the range of a partition.
- `timestamp` moves the start. All records before the first one at or after a time are older than it. The end cannot
  move, because producers set timestamps and later records may have earlier ones.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from tidemill.model.topics import TopicPartition
from tidemill.pipelines.source.core.offsets import OffsetRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_TYPES: dict[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}


class Comparison(NamedTuple):
    """A column and the value that it is compared with. `kind` is Spark's name of the filter."""

    column: str
    kind: str
    value: Any = None
    negated: bool = False


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda found, value: found == value,
    "EqualNullSafe": lambda found, value: found == value,
    "GreaterThan": lambda found, value: found > value,
    "GreaterThanOrEqual": lambda found, value: found >= value,
    "LessThan": lambda found, value: found < value,
    "LessThanOrEqual": lambda found, value: found <= value,
    "In": lambda found, value: found in value,
    "IsNull": lambda _found, _value: False,
    "IsNotNull": lambda _found, _value: True,
    "StringStartsWith": lambda found, value: found.startswith(value),
    "StringEndsWith": lambda found, value: found.endswith(value),
    "StringContains": lambda found, value: value in found,
}
_STRINGS = {"StringStartsWith", "StringEndsWith", "StringContains"}
_WITHOUT_VALUE = {"IsNull", "IsNotNull"}


@dataclass(frozen=True, slots=True)
class Pushed:
    """The comparisons that all rows of a query satisfy."""

    comparisons: tuple[Comparison, ...] = ()

    @classmethod
    def of(cls, comparisons: Iterable[Comparison]) -> "Pushed":
        """The supported comparisons among these."""
        return cls(tuple(each for each in comparisons if _understood(each)))

    def wants(self, part: TopicPartition) -> bool:
        """Whether records of this partition can match."""
        facts = {"topic": part.topic, "partition": part.partition}
        return all(_holds(each, facts[each.column]) for each in self.comparisons if each.column in facts)

    def cut(self, whole: OffsetRange) -> OffsetRange:
        """The part of a range whose offsets can match; empty when none can."""
        start, end = whole.start, whole.end
        for each in self.comparisons:
            if each.column == "offset":
                low, high = _between(each)
                start = start if low is None else max(start, low)
                end = end if high is None else min(end, high + 1)
        return whole._replace(start=start, end=max(start, end))

    @property
    def since_ms(self) -> int | None:
        """No record older than this can match. None when the filters do not limit the time."""
        lows = [_between(each)[0] for each in self.comparisons if each.column == "timestamp"]
        times = [(low - _EPOCH) // _MILLISECOND for low in lows if low is not None]
        # In ListOffsets, negative times have special meanings.
        return max((time for time in times if time > 0), default=None)


def _understood(each: Comparison) -> bool:
    kind = _TYPES.get(each.column)
    if kind is None or each.kind not in _HOLDS:
        return False
    if each.kind in _WITHOUT_VALUE:
        return True
    if each.kind in _STRINGS and kind is not str:
        return False
    values = each.value if each.kind == "In" else [each.value]
    return all(_comparable(value, kind) for value in values)


def _comparable(value: object, kind: type) -> bool:
    if isinstance(value, datetime):
        return kind is datetime and value.tzinfo is not None
    return isinstance(value, kind) and not isinstance(value, bool)


def _holds(each: Comparison, found: object) -> bool:
    return _HOLDS[each.kind](found, each.value) is not each.negated


def _between(each: Comparison) -> tuple[Any, Any]:
    """The lowest and the highest value that can match, both inclusive. None means no bound."""
    if each.negated:
        return None, None
    match each.kind:
        case "EqualTo" | "EqualNullSafe":
            return each.value, each.value
        case "GreaterThan" | "GreaterThanOrEqual":
            return (each.value, None) if each.kind.endswith("Equal") else (_after(each.value), None)
        case "LessThan" | "LessThanOrEqual":
            return (None, each.value) if each.kind.endswith("Equal") else (None, _before(each.value))
        case "In":
            return min(each.value, default=None), max(each.value, default=None)
        case _:
            return None, None


def _after(value: Any) -> Any:
    return value + 1 if isinstance(value, int) else value


def _before(value: Any) -> Any:
    return value - 1 if isinstance(value, int) else value
