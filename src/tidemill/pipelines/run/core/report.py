"""The data of a report: traffic of topics over time, and the lag of groups."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STEPS_MAX = 240
"""The largest number of points that can be distinguished on a plot."""
STEPS_S = (1, 2, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)


def step_s(span_ms: int) -> int:
    """The seconds that one point of a plot over this span adds up."""
    return next((step for step in STEPS_S if span_ms <= step * 1000 * STEPS_MAX), STEPS_S[-1])


@dataclass(frozen=True, slots=True)
class ReportedTraffic:
    """The traffic of a topic during the report. Rates are per second, over the time in which records arrived."""

    topic: str
    records: int
    bytes: int
    records_per_s: float
    peak_per_s: float
    newest_ms: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group in one partition. `lag_s` is the age of the oldest unread record."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int
    lag_s: float

    @property
    def lag(self) -> int:
        """The lag in records."""
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """The whole report. `traffic` has topic, partition, at (ms), records and bytes for each step."""

    since_ms: int
    until_ms: int
    step_s: int
    traffic: Sequence[Mapping[str, Any]]
    lags: tuple[GroupLag, ...]

    @property
    def topics(self) -> list[ReportedTraffic]:
        """The topics, the busiest first."""
        found = [_topic(topic, points, self.step_s) for topic, points in self.series().items()]
        return sorted(found, key=lambda each: (-each.records, each.topic))

    def series(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Records and bytes of all partitions, by topic and step."""
        found: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        for row in self.traffic:
            records, size = found[row["topic"]].get(row["at"], (0, 0))
            found[row["topic"]][row["at"]] = (records + row["records"], size + row["bytes"])
        return dict(found)

    @property
    def moments(self) -> list[int]:
        """Every step from the first to the last that has a record."""
        found = [row["at"] for row in self.traffic]
        return list(range(min(found), max(found) + 1, self.step_s * 1000)) if found else []

    def groups(self) -> list[dict[str, Any]]:
        """The lag of each group in each topic, the largest first."""
        found: dict[tuple[str, str], list[GroupLag]] = defaultdict(list)
        for lag in self.lags:
            found[lag.group, lag.topic].append(lag)
        rows = [
            {"group": group, "topic": topic, "lag": sum(each.lag for each in lags), "lag_s": max(e.lag_s for e in lags)}
            for (group, topic), lags in found.items()
        ]
        return sorted(rows, key=lambda row: (-row["lag"], row["group"], row["topic"]))


def _topic(topic: str, points: Mapping[int, tuple[int, int]], step: int) -> ReportedTraffic:
    records, size = _sums(points.values())
    span_s = (max(points) - min(points)) / 1000 + step
    return ReportedTraffic(
        topic=topic,
        records=records,
        bytes=size,
        records_per_s=round(records / span_s, 1),
        peak_per_s=round(max(count for count, _ in points.values()) / step, 1),
        newest_ms=max(points) + step * 1000,
    )


def _sums(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    counted = list(pairs)
    return sum(count for count, _ in counted), sum(size for _, size in counted)
