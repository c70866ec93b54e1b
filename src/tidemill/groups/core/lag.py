"""Adds the lag of partitions up to the lag of a group in a topic. The number of results is bounded."""

from collections.abc import Iterable
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


def topic_lags(lags: Iterable[PartitionLag], pairs_max: int = PAIRS_MAX) -> dict[tuple[str, str], TopicLag]:
    """Return the lag of each group in each topic."""
    found: dict[tuple[str, str], TopicLag] = {}
    for lag in lags:
        pair = (lag.committed.group_id, lag.committed.place.topic)
        if pair not in found and len(found) >= pairs_max:
            pair = OTHERS
        known = found.get(pair)
        found[pair] = TopicLag(lag.records, lag.records, lag.seconds) if known is None else known.plus(lag)
    return found
