"""The metrics of share groups, by group and topic. The number of pairs that are shown is bounded.

The lag of a partition comes from the broker that coordinates its share state, also while the group has no members.
If that broker has no replica of the partition, it comes from the leader.
"""

from collections.abc import Iterable, Iterator
from operator import itemgetter

from tidemill.broker.share_positions import SharePositions
from tidemill.model.metrics import CounterReading, Gauge, MetricReading
from tidemill.shares.core.share_position import SharePosition
from tidemill.shares.counts import ATTEMPTS, CountsByPair, ShareCounts

PAIRS_SHOWN_MAX = 500
"""The most pairs of group and topic with gauges: the first ones by name."""
Pair = tuple[str, str]
"""A group and a topic."""


class ShareReadings:
    """The records of each group by state, its lag, and what has become of deliveries."""

    def __init__(self, positions: SharePositions, counts: CountsByPair) -> None:
        self._positions = positions
        self._counts = counts

    async def snapshot(self, by_partition: bool) -> Iterator[MetricReading]:
        """The metrics, computed in turns."""
        _ = by_partition
        pairs: dict[Pair, list[SharePosition]] = {}
        for each in await self._positions.all():
            pairs.setdefault((each.group_id, each.topic), []).append(each)
        shown = [(pair, pairs[pair]) for pair in sorted(pairs)[:PAIRS_SHOWN_MAX]]
        return _readings(shown, sorted(self._counts.known.items(), key=itemgetter(0)))


def _readings(
    shown: Iterable[tuple[Pair, list[SharePosition]]], counted: Iterable[tuple[Pair, ShareCounts]]
) -> Iterator[MetricReading]:
    for pair, positions in shown:
        yield from _of_positions(*pair, positions)
    for pair, counts in counted:
        yield from _of_counts(*pair, counts)


def _of_positions(group: str, topic: str, positions: list[SharePosition]) -> Iterator[MetricReading]:
    labels = (("group", group), ("topic", topic))
    lags = [each.lag for each in positions if each.counts_lag]
    known = [lag for lag in lags if lag is not None]
    if known:
        yield Gauge("tidemill_share_lag_records", "Records that a share group has not done.", sum(known), labels)
    yield Gauge(
        "tidemill_share_lag_unknown_partitions",
        "Partitions of a share group whose lag its share coordinator does not know: not begun, or no replica there. "
        "The leader of such a partition counts its lag while the group has members.",
        len(lags) - len(known),
        labels,
    )
    flights = [each.in_flight for each in positions if each.in_flight is not None]
    if not flights:
        return
    for state, count in (
        ("acquired", sum(each.acquired for each in flights)),
        ("available", sum(each.available for each in flights)),
        ("waiting", sum(each.waiting for each in flights)),
    ):
        yield Gauge(
            "tidemill_share_records",
            "Records delivered to a share group and not done, on partitions that this broker leads: acquired, "
            "available again, or waiting for their retry.",
            count,
            (("group", group), ("topic", topic), ("state", state)),
        )
    yield Gauge(
        "tidemill_share_oldest_lock_seconds",
        "Age of the oldest lock of a share group, since it was taken or renewed; 0 without locks.",
        max(each.oldest_lock_ms for each in flights) / 1_000,
        labels,
    )


def _of_counts(group: str, topic: str, counts: ShareCounts) -> Iterator[MetricReading]:
    labels = (("group", group), ("topic", topic))
    for attempt, count in zip(ATTEMPTS, counts.attempts, strict=True):
        yield CounterReading(
            "tidemill_share_deliveries",
            "Deliveries of records to members of share groups, by the number of the delivery.",
            count,
            (("group", group), ("topic", topic), ("attempt", attempt)),
        )
    for result, count in (
        ("accepted", counts.accepted),
        ("released", counts.released),
        ("archived", counts.archived),
        ("expired", counts.expired),
    ):
        yield CounterReading(
            "tidemill_share_delivery_results",
            "Deliveries of records to share groups that ended, by result. archived: rejected, or released too often; "
            "expired: the lock ended.",
            count,
            (("group", group), ("topic", topic), ("result", result)),
        )
    yield CounterReading(
        "tidemill_share_archived_records",
        "Records that a share group never gets again: rejected, or delivered too often without being accepted.",
        counts.gone,
        labels,
    )
