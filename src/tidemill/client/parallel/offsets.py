"""Which offset may be committed while records complete in any order.

The rule: an offset is committable when every record before it is complete. A record that is not complete is
*pending*; the first pending record is the *gap*. What is remembered is the pending records alone, in the order in
which they arrived: the committable offset is the first of them, and everything received that is not pending is
complete. So a completion costs a deletion, memory grows with the work in hand and not with what completed beyond the
gap, and offsets that the broker never handed out (markers of transactions, compacted records) need no care: they are
nobody's pending record.

`PartitionTracking` keeps a gap to its partition. `SequenceTracking` counts arrivals over all partitions in one
sequence, so that a gap anywhere holds every commit back: simpler to reason about, and what the first design of this
library did.
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
    """What the consumer asks of either kind of tracking."""

    def received(self, place: TopicPartition, offset: int) -> None:
        """A record arrived; records of one partition arrive in the order of their offsets."""

    def completed(self, place: TopicPartition, offset: int) -> None:
        """A record is done with; a second completion, or one of a forgotten partition, changes nothing."""

    def committable(self) -> dict[TopicPartition, int]:
        """For each partition the offset to commit: the next one to read if the consumer ended now."""

    def beyond(self, place: TopicPartition) -> list[CompletedRun]:
        """What is complete after the committable offset, as runs."""

    def pending(self, place: TopicPartition) -> int:
        """How many records of the partition are not complete."""

    def forget(self, place: TopicPartition) -> None:
        """The partition went to somebody else."""


class _PendingOffsets:
    """The pending offsets of one partition, oldest first, and where its received records begin and end."""

    __slots__ = ("first", "high", "offsets")

    def __init__(self, first: int) -> None:
        self.first = first
        self.high = first - 1
        self.offsets: OrderedDict[int, None] = OrderedDict()

    def contiguous(self) -> int:
        """The first offset that is not known to be complete."""
        return next(iter(self.offsets)) if self.offsets else self.high + 1

    def runs_after(self, offset: int) -> Iterator[CompletedRun]:
        """Complete offsets from `offset` on: what lies between the pending ones."""
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
    """One sequence over all partitions: a gap anywhere holds every commit back."""

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
        partition = self._partitions._partitions.get(place)  # noqa: SLF001 -- one file, one mechanism
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
        # It may come back, and where it stood before means nothing then.
        self._arrivals = deque(arrival for arrival in self._arrivals if arrival.place != place)
        self._advance()


class Skipping:
    """Offsets that an earlier life of the group completed beyond its gap: they are not handled again."""

    def __init__(self, runs: Iterable[CompletedRun]) -> None:
        self._runs = deque(sorted(runs))

    def skips(self, offset: int) -> bool:
        """Whether this record is complete already; asked in the order of offsets."""
        while self._runs and self._runs[0].last < offset:
            self._runs.popleft()
        return bool(self._runs) and self._runs[0].first <= offset

    def __bool__(self) -> bool:
        return bool(self._runs)
