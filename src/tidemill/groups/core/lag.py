"""Adds the lag of partitions up to the lag of a group in a topic. The number of results is bounded."""

from typing import NamedTuple

from tidemill.groups.core.overview import CommittedOffset

PAIRS_MAX = 50_000
"""The most pairs of group and topic that are reported by name; further ones are added together."""
OTHERS = ("(other)", "(other)")


class PartitionLag(NamedTuple):
    """The lag of a group in one partition; `seconds` is None when the age of the next record is not known."""

    committed: CommittedOffset
    records: int
    seconds: float | None


class TopicLag(NamedTuple):
    """The lag of a group in one topic: the sum and the largest of its partitions, and the largest age."""

    records: int
    records_max: int
    seconds: float | None

    def plus(self, lag: PartitionLag) -> "TopicLag":
        """Return the lag with one more partition."""
        known = [each for each in (self.seconds, lag.seconds) if each is not None]
        return TopicLag(self.records + lag.records, max(self.records_max, lag.records), max(known) if known else None)

    def plus_topic(self, lag: "TopicLag") -> "TopicLag":
        """Return the lag with one more topic."""
        known = [each.seconds for each in (self, lag) if each.seconds is not None]
        return TopicLag(
            self.records + lag.records, max(self.records_max, lag.records_max), max(known) if known else None
        )


class TopicLags:
    """The lag of each group in each topic, added up partition by partition."""

    def __init__(self, pairs_max: int = PAIRS_MAX) -> None:
        self.by_pair: dict[tuple[str, str], TopicLag] = {}
        self._pairs_max = pairs_max

    def add(self, lag: PartitionLag) -> None:
        """Add the lag of one partition."""
        pair = (lag.committed.group_id, lag.committed.place.topic)
        if pair not in self.by_pair and len(self.by_pair) >= self._pairs_max:
            pair = OTHERS
        known = self.by_pair.get(pair)
        self.by_pair[pair] = TopicLag(lag.records, lag.records, lag.seconds) if known is None else known.plus(lag)
