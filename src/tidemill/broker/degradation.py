"""Why this broker is degraded, as metrics: each reason of a fixed list is 1 or 0. `/health` has them in words."""

from collections.abc import Callable, Iterator
from enum import StrEnum

from tidemill.broker.partitions import Partitions
from tidemill.clocks.watch import ClockWatch
from tidemill.cluster.core.peer_reach import PeersVerdict
from tidemill.cluster.membership import Membership
from tidemill.model.metrics import Gauge
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.health import Doubt


class DegradationReason(StrEnum):
    """A reason for which a broker does less than it should."""

    DISK_FULL = "disk_full"
    PARTITION_FAILED = "partition_failed"
    COORDINATION_LOST = "coordination_lost"
    PEERS_MISSING = "peers_missing"
    CLOCK_IN_DOUBT = "clock_in_doubt"
    TASK_FAILING = "task_failing"
    TIMELINES_WALL_CLOCK = "timelines_wall_clock"
    TIMELINES_STORE_CLOCK = "timelines_store_clock"
    TIMELINES_CLIENT_CLOCKS = "timelines_client_clocks"
    TIMELINES_STORE_FAILING = "timelines_store_failing"
    TIMELINES_STORE_READ_ONLY = "timelines_store_read_only"
    TIMELINES_CONSUMERS_FAILING = "timelines_consumers_failing"


OF_TIMELINES = {
    Doubt.BROKER_CLOCK: DegradationReason.CLOCK_IN_DOUBT,
    Doubt.WALL_CLOCK: DegradationReason.TIMELINES_WALL_CLOCK,
    Doubt.STORE_CLOCK: DegradationReason.TIMELINES_STORE_CLOCK,
    Doubt.CLIENT_CLOCKS: DegradationReason.TIMELINES_CLIENT_CLOCKS,
    Doubt.STORE_FAILING: DegradationReason.TIMELINES_STORE_FAILING,
    Doubt.STORE_READ_ONLY: DegradationReason.TIMELINES_STORE_READ_ONLY,
    Doubt.CONSUMERS_FAILING: DegradationReason.TIMELINES_CONSUMERS_FAILING,
}


class Degradation:
    """Looks for the reasons in the parts of a broker."""

    def __init__(
        self,
        partitions: Partitions,
        membership: Membership,
        supervisor: Supervisor,
        watch: ClockWatch | None,
        timelines: Callable[[], Dispatcher | None],
        peers: Callable[[], PeersVerdict],
    ) -> None:
        self._partitions = partitions
        self._membership = membership
        self._supervisor = supervisor
        self._watch = watch
        self._timelines = timelines
        self._peers = peers

    def reasons(self) -> set[DegradationReason]:
        """The reasons that hold now."""
        checks = {
            DegradationReason.DISK_FULL: self._partitions.store.full or self._partitions.lacks_room,
            DegradationReason.PARTITION_FAILED: bool(self._partitions.broken()),
            DegradationReason.COORDINATION_LOST: not self._membership.alive,
            DegradationReason.PEERS_MISSING: bool(self._peers()),
            DegradationReason.CLOCK_IN_DOUBT: self._watch is not None and not self._watch.trusted,
            DegradationReason.TASK_FAILING: bool(self._supervisor.reasons()),
        }
        timelines = self._timelines()
        doubts = () if timelines is None else timelines.guard.doubts()
        return {reason for reason, holds in checks.items() if holds} | {OF_TIMELINES[doubt] for doubt in doubts}

    def readings(self) -> Iterator[Gauge]:
        """Every reason with 1 if it holds, else 0."""
        holding = self.reasons()
        for reason in DegradationReason:
            labels = (("reason", reason.value),)
            yield Gauge("tidemill_degraded", "The broker is degraded for this reason.", int(reason in holding), labels)
