"""Ranges of offsets whose records are in the same state, in order, without one object for each record.

Neighbors that are equal become one range, so the cost depends on how often the state changes along the offsets. Ranges
may have holes between them.
"""

from bisect import bisect_right
from collections.abc import Iterator
from enum import IntEnum


class DeliveryState(IntEnum):
    """The state of a record, with Kafka's numbers where Kafka stores it."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4
    """It is not delivered again: rejected, delivered too often, or there is no such record."""
    WAITING = 5
    """It becomes available after its delay; stored as AVAILABLE."""


FINAL = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


class RecordRange:
    """Records with consecutive offsets in the same state.

    `until_ms` is when the lock of an acquired record ends, or when a waiting one becomes available. `is_settling`: an
    acknowledgement is on its way to the disk, so nothing else may change the state.
    """

    __slots__ = ("deliveries", "first", "is_settling", "last", "owner", "state", "until_ms")

    def __init__(
        self,
        first: int,
        last: int,
        state: DeliveryState,
        deliveries: int = 0,
        owner: str = "",
        until_ms: int = 0,
        *,
        is_settling: bool = False,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        self.owner = owner
        self.until_ms = until_ms
        self.is_settling = is_settling

    @property
    def size(self) -> int:
        """The number of records."""
        return self.last - self.first + 1

    @property
    def is_final(self) -> bool:
        """Whether the records are never delivered again."""
        return self.state in FINAL

    def become(self, state: DeliveryState, deliveries: int, owner: str = "", until_ms: int = 0) -> None:
        """Change the state; the range is no longer settling."""
        self.state, self.deliveries, self.owner, self.until_ms = state, deliveries, owner, until_ms
        self.is_settling = False

    def is_like(self, other: "RecordRange") -> bool:
        """Whether the records of both are in the same state. Final ones are: their deliveries no longer matter."""
        if self.state != other.state or self.is_settling != other.is_settling:
            return False
        if self.is_final:
            return True
        return (self.deliveries, self.owner, self.until_ms) == (other.deliveries, other.owner, other.until_ms)

    def part(self, first: int, last: int) -> "RecordRange":
        """A range with the same state."""
        return RecordRange(
            first, last, self.state, self.deliveries, self.owner, self.until_ms, is_settling=self.is_settling
        )


class RecordRanges:
    """Ranges in order. The caller changes the ranges that `split` returns, then calls `join`."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ranges: list[RecordRange] = []

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[RecordRange]:
        return iter(self._ranges)

    @property
    def head(self) -> RecordRange | None:
        """The first range."""
        return self._ranges[0] if self._ranges else None

    @property
    def end_offset(self) -> int:
        """The offset after the last range; -1 without ranges."""
        return self._ranges[-1].last + 1 if self._ranges else -1

    def at(self, offset: int) -> RecordRange | None:
        """The range that contains an offset."""
        index = bisect_right(self._firsts, offset) - 1
        return self._ranges[index] if index >= 0 and self._ranges[index].last >= offset else None

    def overlapping(self, first: int, last: int) -> list[RecordRange]:
        """The ranges that have an offset in common with this one, whole."""
        return self._ranges[self._index(first) : bisect_right(self._firsts, last)]

    def split(self, first: int, last: int) -> list[RecordRange]:
        """The ranges between two offsets, cut at these offsets."""
        self._cut(first)
        self._cut(last + 1)
        return self.overlapping(first, last)

    def join(self, first: int, last: int) -> None:
        """Make one range of equal neighbors, from the neighbor before `first` to the one after `last`."""
        start = max(0, self._index(first) - 1)
        end = min(len(self._ranges), bisect_right(self._firsts, last) + 1)
        joined: list[RecordRange] = []
        for each in self._ranges[start:end]:
            if joined and joined[-1].last + 1 == each.first and joined[-1].is_like(each):
                joined[-1].last = each.last
            else:
                joined.append(each)
        if len(joined) < end - start:
            self._replace(start, end, joined)

    def append(self, added: RecordRange) -> None:
        """Add a range after all others; it stays a range of its own until `join`."""
        self._firsts.append(added.first)
        self._ranges.append(added)

    def put(self, added: RecordRange) -> None:
        """Add a range, which replaces what is known of its offsets."""
        self._cut(added.first)
        self._cut(added.last + 1)
        self._replace(self._index(added.first), bisect_right(self._firsts, added.last), [added])
        self.join(added.first, added.last)

    def drop_below(self, offset: int) -> None:
        """Forget everything before an offset."""
        self._cut(offset)
        self._replace(0, self._index(offset), [])

    def _index(self, offset: int) -> int:
        """The index of the first range that ends at `offset` or later."""
        index = bisect_right(self._firsts, offset)
        return index - 1 if index and self._ranges[index - 1].last >= offset else index

    def _cut(self, offset: int) -> None:
        index = bisect_right(self._firsts, offset) - 1
        if index < 0:
            return
        whole = self._ranges[index]
        if whole.first < offset <= whole.last:
            rest = whole.part(offset, whole.last)
            whole.last = offset - 1
            self._firsts.insert(index + 1, offset)
            self._ranges.insert(index + 1, rest)

    def _replace(self, start: int, end: int, ranges: list[RecordRange]) -> None:
        self._ranges[start:end] = ranges
        self._firsts[start:end] = [each.first for each in ranges]
