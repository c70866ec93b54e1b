"""How far a query is, what it reads next, and how that is cut into tasks.

`QueryProgress` is what Spark keeps in its checkpoint: `{"orders": {"0": 12}, "$ids": {"orders": "..."}}`, the JSON of
Spark's kafka source and beside it the ids of the topics, by which a topic that was deleted and created again is
noticed. Everything here depends on its arguments alone: a micro-batch that runs again is cut into the same tasks.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tidemill.model.topics import TopicPartition

IDS = "$ids"
"""No topic can have this name."""
TASK_OFFSETS = 100_000
"""Small ranges share a task of so many: a task costs Spark more than a few thousand records do."""
TASKS_MIN = 8
"""So many tasks are not given up for that: they keep the cores busy."""


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The next offset of each partition, and which topics they were."""

    offsets: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """It as Spark keeps it."""
        topics: dict[str, Any] = {}
        for part in sorted(self.offsets):
            topics.setdefault(part.topic, {})[str(part.partition)] = self.offsets[part]
        return {**topics, IDS: dict(sorted(self.ids.items()))}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "QueryProgress":
        """What `to_json` made."""
        offsets = {
            TopicPartition(topic, int(index)): offset
            for topic, partitions in kept.items()
            if topic != IDS
            for index, offset in partitions.items()
        }
        return cls(offsets, kept.get(IDS, {}))

    def renewed_in(self, later: "QueryProgress") -> set[str]:
        """Topics that were created anew since."""
        return {name for name, known in self.ids.items() if later.ids.get(name, known) != known}


class OffsetRange(NamedTuple):
    """What is read of one partition: from `start` to before `end`."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; there may be fewer records."""
        return self.end - self.start


def newcomers(start: QueryProgress, end: QueryProgress) -> set[TopicPartition]:
    """Partitions that are in the end but were not in the start, or not of the same topic."""
    renewed = start.renewed_in(end)
    return {part for part in end.offsets if part not in start.offsets or part.topic in renewed}


def ranges_between(start: QueryProgress, end: QueryProgress, first: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """What lies between; newcomers are read from `first`, where their logs begin."""
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
    """The ranges cut so that there are about `min_partitions` or more, none above `max_records`."""
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
    """The ranges as tasks: each has its own, except for many small ones, neighbours of which share one."""
    pieces = list(ranges)
    fewest = max(TASKS_MIN, min_partitions or 0)
    room = min(TASK_OFFSETS, max_records or TASK_OFFSETS, math.ceil(sum(each.size for each in pieces) / fewest))
    tasks: list[list[OffsetRange]] = []
    taken = 0
    for place, piece in enumerate(pieces):
        left = len(pieces) - place
        if not tasks or taken + piece.size > room or len(tasks) + left <= fewest:
            tasks.append([])
            taken = 0
        tasks[-1].append(piece)
        taken += piece.size
    return [tuple(task) for task in tasks]


def worth_a_batch(backlog: int, min_offsets: int | None, waited_ms: int | None, max_delay_ms: int) -> bool:
    """Whether a micro-batch begins now: there is enough, or it was put off long enough (None: there was none yet)."""
    return min_offsets is None or backlog >= min_offsets or waited_ms is None or waited_ms >= max_delay_ms


def limited(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    budget: int,
    cost: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """The end moved back so that what is read costs about the budget, at `cost` per record (1 if not named).

    Each partition gets a share as large as its backlog, and at least one record, so that none starves.
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
