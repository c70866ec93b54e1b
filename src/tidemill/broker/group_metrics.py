"""The metrics of all groups together that this broker coordinates; those of each group are in group_lag.py."""

from collections.abc import Callable, Iterator

from tidemill.groups.coordinator import GroupCoordinator
from tidemill.model.metrics import CounterReading, MetricReading


def group_readings(groups: GroupCoordinator) -> Callable[[], Iterator[MetricReading]]:
    """What the coordinator of groups has counted."""

    def read() -> Iterator[MetricReading]:
        yield CounterReading(
            "tidemill_group_rebalances", "Generations and epochs of groups that began here.", groups.rebalances
        )
        yield CounterReading("tidemill_offset_commits", "Commits of offsets that are durable.", groups.offset_commits)

    return read
