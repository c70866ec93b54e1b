"""The position of a query, the range that it reads next, and how that range is split into tasks.

Spark stores `QueryProgress` in its checkpoint: `{"orders": {"0": 12}, "$ids": {"orders": "..."}}`. This is the JSON of
Spark's kafka source plus the topic ids. The ids show that a topic was deleted and created again. All functions here
depend only on their arguments, so a repeated micro-batch is split into the same tasks.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tidemill.model.topics import TopicPartition

IDS = "$ids"
"""A name that no topic can have."""
TASK_OFFSETS = 100_000
"""Small ranges share a task up to this size, because a task costs Spark more than a few thousand records do."""
TASKS_MIN = 8
"""Sharing never goes below this many tasks, because they keep the cores busy."""


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The next offset of each partition, and the topic ids."""

    offsets: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The progress as Spark stores it."""
        topics: dict[str, Any] = {}
        for part in sorted(self.offsets):
            topics.setdefault(part.topic, {})[str(part.partition)] = self.offsets[part]
        return {**topics, IDS: dict(sorted(self.ids.items()))}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "QueryProgress":
        """Parse the result of `to_json`."""
        offsets = {
            TopicPartition(topic, int(index)): offset
            for topic, partitions in kept.items()
            if topic != IDS
            for index, offset in partitions.items()
        }
        return cls(offsets, kept.get(IDS, {}))

    def renewed_in(self, later: "QueryProgress") -> set[str]:
        """Topics that were deleted and created again since."""
        return {name for name, known in self.ids.items() if later.ids.get(name, known) != known}


class OffsetRange(NamedTuple):
    """A range of one partition: from `start` up to, but not including, `end`."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets. There may be fewer records."""
        return self.end - self.start


def newcomers(start: QueryProgress, end: QueryProgress) -> set[TopicPartition]:
    """Partitions in the end that were not in the start, or that belonged to another topic of the same name."""
    renewed = start.renewed_in(end)
    return {part for part in end.offsets if part not in start.offsets or part.topic in renewed}


def ranges_between(start: QueryProgress, end: QueryProgress, first: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The ranges in between. New partitions are read from `first`, the start of their logs."""
    fresh = newcomers(start, end)
    found = []
    for part in sorted(end.offsets):
        begin = first.get(part, 0) if part in fresh else start.offsets[part]
        if begin < end.offsets[part]:
            found.append(OffsetRange(part, begin, end.offsets[part]))
    return found


def split(
    ranges: Collection[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """The ranges, split into about `min_partitions` or more, none larger than `max_records`."""
    total = sum(each.size for each in ranges)
    pieces: list[OffsetRange] = []
    for each in ranges:
        parts = 1
        if min_partitions is not None and len(ranges) < min_partitions:
            parts = max(parts, round(each.size / total * min_partitions))
        if max_records is not None:
            parts = max(parts, math.ceil(each.size / max_records))
        pieces.extend(_cut(each, min(parts, each.size)))
    return pieces


def _cut(whole: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    marks = [whole.start + whole.size * part // parts for part in range(parts + 1)]
    return (OffsetRange(whole.partition, low, high) for low, high in pairwise(marks))


def packed(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """The ranges as tasks, one range each. If there are many small ranges, neighbours share a task."""
    pieces = list(ranges)
    fewest = max(TASKS_MIN, min_partitions or 0)
    limit = min(TASK_OFFSETS, max_records or TASK_OFFSETS, math.ceil(sum(each.size for each in pieces) / fewest))
    tasks: list[list[OffsetRange]] = []
    taken = 0
    for place, piece in enumerate(pieces):
        left = len(pieces) - place
        if not tasks or taken + piece.size > limit or len(tasks) + left <= fewest:
            tasks.append([])
            taken = 0
        tasks[-1].append(piece)
        taken += piece.size
    return [tuple(task) for task in tasks]


def worth_a_batch(backlog: int, min_offsets: int | None, waited_ms: int | None, max_delay_ms: int) -> bool:
    """Whether to start a micro-batch: there are enough records, or it has waited long enough (None: no batch yet)."""
    return min_offsets is None or backlog >= min_offsets or waited_ms is None or waited_ms >= max_delay_ms


def limited(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    budget: int,
    cost: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """The end, moved back so that the range costs about the budget, at `cost` per record (default 1).

    Each partition gets a share in proportion to its backlog, and at least one record, so that none starves.
    """
    backlog = {part: (end[part] - start[part]) * cost.get(part, 1.0) for part in end if end[part] > start[part]}
    total = sum(backlog.values())
    if total <= budget:
        return dict(end)
    moved = dict(end)
    for part, size in backlog.items():
        records = int(budget * size / total / cost.get(part, 1.0))
        moved[part] = min(end[part], start[part] + max(1, records))
    return moved
