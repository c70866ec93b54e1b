"""Counts the scheduled records that this broker delivers, by topic."""

from collections.abc import Iterable, Iterator

from tidemill.model.metrics import Histogram
from tidemill.scheduling.delivery import Due
from tidemill.timelines.stats import DELAY_BOUNDS_S, PAST_DUE_MS

NAMED_MAX = 1_000
"""The most topics that are counted by name; further ones are counted together."""
OTHER_TOPICS = "(other)"


class ScheduledStats:
    """The scheduled records of one topic since the broker started."""

    __slots__ = ("delivered", "dropped", "failed", "lateness")

    def __init__(self) -> None:
        self.delivered = 0
        """Records that the leaders of their partitions have stored."""
        self.dropped = 0
        """Records whose topic or partition does not exist any more."""
        self.failed = 0
        """Deliveries that failed, or whose outcome is unknown; the records are delivered again."""
        self.lateness = Histogram(DELAY_BOUNDS_S)
        """From due time to storage. Without records that were due more than a second before they were produced."""

    def stored(self, records: Iterable[Due], now_ms: int) -> None:
        """Count records that are in the log."""
        for one in records:
            self.delivered += 1
            if one.scheduled_ms + PAST_DUE_MS >= one.record.timestamp:
                self.lateness.add(max(0, now_ms - one.scheduled_ms) / 1_000)


class ScheduledCounts:
    """The scheduled records of all topics."""

    def __init__(self) -> None:
        self._by_topic: dict[str, ScheduledStats] = {}

    def of(self, topic: str) -> ScheduledStats:
        """The numbers of a topic."""
        found = self._by_topic.get(topic)
        if found is None:
            label = topic if len(self._by_topic) < NAMED_MAX else OTHER_TOPICS
            found = self._by_topic.setdefault(label, ScheduledStats())
        return found

    def forget(self, topic: str) -> None:
        """Drop the numbers of a deleted topic."""
        self._by_topic.pop(topic, None)

    def __iter__(self) -> Iterator[tuple[str, ScheduledStats]]:
        return iter(sorted(self._by_topic.items(), key=lambda each: each[0]))
