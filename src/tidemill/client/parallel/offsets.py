"""Finds the offset that may be committed while records complete in any order.

An offset is committable when every record before it is complete. A record that is not complete is *pending*, and the
first pending record is the *gap*. Only the pending records are stored, in the order of arrival. The first of them is
the committable offset, and every other received record is complete. So a completion costs one deletion, and memory
grows with the pending records and not with the records complete beyond the gap. Offsets that the broker never returns
(transaction markers, compacted records) need no handling, because they are never pending.

`PartitionTracking` limits a gap to its partition. `SequenceTracking` counts arrivals over all partitions in one
sequence, so that a gap in any partition holds back every commit. It is simpler to reason about.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from tidemill.model.topics import TopicPartition


class CompletedRun(NamedTuple):
    """Offsets `first` to `last`, both included, all complete."""

    first: int
    last: int


class Tracking(Protocol):
    """The interface of both kinds of tracking."""

    def received(self, place: TopicPartition, offset: int) -> None:
        """Add a record. Records of one partition arrive in the order of their offsets."""

    def completed(self, place: TopicPartition, offset: int) -> None:
        """Complete a record. A second completion, or one of a forgotten partition, changes nothing."""

    def committable(self) -> dict[TopicPartition, int]:
        """The offset to commit for each partition: the next one to read if the consumer stopped now."""

    def beyond(self, place: TopicPartition) -> list[CompletedRun]:
        """The runs that are complete after the committable offset."""

    def pending(self, place: TopicPartition) -> int:
        """The number of records of the partition that are not complete."""

    def forget(self, place: TopicPartition) -> None:
        """Remove a partition that another member owns now."""


class _PendingOffsets:
    """The pending offsets of one partition, oldest first, and the range of its received records."""

    __slots__ = ("first", "high", "offsets")

    def __init__(self, first: int) -> None:
        self.first = first
        self.high = first - 1
        self.offsets: OrderedDict[int, None] = OrderedDict()

    def contiguous(self) -> int:
        """The first offset that is not known to be complete."""
        return next(iter(self.offsets)) if self.offsets else self.high + 1

    def runs_after(self, offset: int) -> Iterator[CompletedRun]:
        """The runs of complete offsets from `offset` on, between the pending ones."""
        place = offset
        for pending in self.offsets:
            if pending > place:
                yield CompletedRun(place, pending - 1)
            place = max(place, pending + 1)
        if place <= self.high:
            yield CompletedRun(place, self.high)


class PartitionTracking:
    """A gap holds back its own partition only."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, _PendingOffsets] = {}

    def received(self, place: TopicPartition, offset: int) -> None:
        """See Tracking."""
        partition = self._partitions.get(place)
        if partition is None:
            partition = self._partitions[place] = _PendingOffsets(offset)
        partition.offsets[offset] = None
        partition.high = offset

    def completed(self, place: TopicPartition, offset: int) -> None:
        """See Tracking."""
        partition = self._partitions.get(place)
        if partition is not None:
            partition.offsets.pop(offset, None)

    def committable(self) -> dict[TopicPartition, int]:
        """See Tracking."""
        return {place: partition.contiguous() for place, partition in self._partitions.items()}

    def beyond(self, place: TopicPartition) -> list[CompletedRun]:
        """See Tracking."""
        partition = self._partitions.get(place)
        return [] if partition is None else list(partition.runs_after(partition.contiguous()))

    def pending(self, place: TopicPartition) -> int:
        """See Tracking."""
        partition = self._partitions.get(place)
        return 0 if partition is None else len(partition.offsets)

    def forget(self, place: TopicPartition) -> None:
        """See Tracking."""
        self._partitions.pop(place, None)


class _Arrival(NamedTuple):
    sequence: int
    place: TopicPartition
    offset: int


class SequenceTracking:
    """Tracks one sequence over all partitions: a gap in any partition holds back every commit."""

    def __init__(self) -> None:
        self._partitions = PartitionTracking()
        self._next = 0
        self._sequences: dict[tuple[TopicPartition, int], int] = {}
        self._gaps: OrderedDict[int, None] = OrderedDict()
        self._arrivals: deque[_Arrival] = deque()
        self._committable: dict[TopicPartition, int] = {}

    def received(self, place: TopicPartition, offset: int) -> None:
        """See Tracking."""
        sequence = self._next
        self._next += 1
        self._partitions.received(place, offset)
        self._sequences[place, offset] = sequence
        self._gaps[sequence] = None
        self._arrivals.append(_Arrival(sequence, place, offset))
        self._committable.setdefault(place, offset)

    def completed(self, place: TopicPartition, offset: int) -> None:
        """See Tracking."""
        sequence = self._sequences.pop((place, offset), None)
        if sequence is None:
            return
        self._partitions.completed(place, offset)
        del self._gaps[sequence]
        self._advance()

    def _advance(self) -> None:
        gap = next(iter(self._gaps)) if self._gaps else self._next
        while self._arrivals and self._arrivals[0].sequence < gap:
            arrival = self._arrivals.popleft()
            self._committable[arrival.place] = arrival.offset + 1

    def committable(self) -> dict[TopicPartition, int]:
        """See Tracking."""
        return dict(self._committable)

    def beyond(self, place: TopicPartition) -> list[CompletedRun]:
        """See Tracking."""
        partition = self._partitions._partitions.get(place)  # noqa: SLF001 -- same module
        return [] if partition is None else list(partition.runs_after(self._committable[place]))

    def pending(self, place: TopicPartition) -> int:
        """See Tracking."""
        return self._partitions.pending(place)

    def forget(self, place: TopicPartition) -> None:
        """See Tracking."""
        self._partitions.forget(place)
        self._committable.pop(place, None)
        for known in [each for each in self._sequences if each[0] == place]:
            del self._gaps[self._sequences.pop(known)]
        # The partition may be assigned again, and its earlier position is not valid then.
        self._arrivals = deque(arrival for arrival in self._arrivals if arrival.place != place)
        self._advance()


class Skipping:
    """Offsets beyond the gap that the group completed before a restart or rebalance. They are not handled again."""

    def __init__(self, runs: Iterable[CompletedRun]) -> None:
        self._runs = deque(sorted(runs))

    def skips(self, offset: int) -> bool:
        """Whether this record is already complete. Called in the order of offsets."""
        while self._runs and self._runs[0].last < offset:
            self._runs.popleft()
        return bool(self._runs) and self._runs[0].first <= offset

    def __bool__(self) -> bool:
        return bool(self._runs)
