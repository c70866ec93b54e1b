"""The metrics of share groups, at the leaders of their partitions. The number of groups that are shown is bounded."""

from collections import Counter
from collections.abc import Callable, Iterator

from tidemill.model.metrics import CounterReading, Gauge, MetricReading
from tidemill.shares.core.record_ranges import DeliveryState
from tidemill.shares.live_partition import LiveSharePartition
from tidemill.shares.partitions import SharePartitions

GROUPS_SHOWN_MAX = 200
"""The most groups that have metrics: the first ones by name."""
_SHOWN = {DeliveryState.ACQUIRED: "acquired", DeliveryState.WAITING: "waiting"}


def share_readings(shares: SharePartitions) -> Callable[[], Iterator[MetricReading]]:
    """The records of each group by state, its lag, and what has become of deliveries."""

    def read() -> Iterator[MetricReading]:
        counts = shares.counts
        for result, count in (
            ("accepted", counts.accepted),
            ("released", counts.released),
            ("archived", counts.archived),
            ("expired", counts.expired),
        ):
            yield CounterReading(
                "tidemill_share_delivery_results",
                "Deliveries of records to share groups that ended, by result; expired: the lock ended.",
                count,
                (("result", result),),
            )
        yield CounterReading(
            "tidemill_share_deliveries", "Deliveries of records to members of share groups.", counts.delivered
        )
        groups: dict[str, list[LiveSharePartition]] = {}
        for live in shares.opened():
            if live.is_current:
                groups.setdefault(live.key.group_id, []).append(live)
        for group in sorted(groups)[:GROUPS_SHOWN_MAX]:
            yield from _of_group(group, groups[group])

    return read


def _of_group(group: str, partitions: list[LiveSharePartition]) -> Iterator[MetricReading]:
    states: Counter[DeliveryState] = Counter()
    lag = 0
    for live in partitions:
        lag += live.lag
        for each in live.core.ranges():
            states[each.state] += each.size
    for state, name in _SHOWN.items():
        yield Gauge(
            "tidemill_share_records",
            "Records of a share group on partitions that this broker leads: acquired, or waiting for their retry.",
            states[state],
            (("group", group), ("state", name)),
        )
    yield Gauge(
        "tidemill_share_lag_records",
        "Records of partitions that this broker leads that a share group has not done.",
        lag,
        (("group", group),),
    )
