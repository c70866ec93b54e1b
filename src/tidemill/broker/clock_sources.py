"""The other clocks that this broker compares its own with: those of the other brokers and of coordination."""

import asyncio
from collections.abc import Callable, Iterable

from tidemill.clocks.core.doubt import DoubtKind, Reading
from tidemill.clocks.watch import ClockWatch
from tidemill.cluster.interface import Coordination
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.model.errors import TidemillError
from tidemill.replication.peers import Peers

COORDINATION = "coordination"


class BrokerClocks:
    """Reads the clocks of the other brokers; the error is half of the round trip."""

    def __init__(self, watch: ClockWatch, peers: Peers, others: Callable[[], Iterable[int]]) -> None:
        self._watch = watch
        self._peers = peers
        self._others = others

    async def read(self) -> list[Reading]:
        """One reading for every broker that answers."""
        readings = await asyncio.gather(*map(self._one, self._others()))
        return [reading for reading in readings if reading is not None]

    async def _one(self, node_id: int) -> Reading | None:
        try:
            asked_ms = self._watch.boot_ms()
            found = await self._peers.clock(node_id)
        except (TidemillError, OSError):  # an unreachable broker does not concern the clock
            return None
        if found is None:
            return None
        middle_ms, error_ms = _middle(asked_ms, self._watch.boot_ms())
        return Reading(DoubtKind.BROKERS, f"broker {node_id}", found.wall_ms, error_ms, middle_ms, found.is_trusted)


class CoordinationClock:
    """Reads the clock of coordination, if it has one."""

    def __init__(self, watch: ClockWatch, coordination: Coordination) -> None:
        self._watch = watch
        self._coordination = coordination

    async def read(self) -> list[Reading]:
        """One reading, or none."""
        asked_ms = self._watch.boot_ms()
        found = await self._coordination.clock()
        if found is None:
            return []
        middle_ms, error_ms = _middle(asked_ms, self._watch.boot_ms())
        return [Reading(DoubtKind.COORDINATION, COORDINATION, found.ms, found.error_ms + error_ms, middle_ms)]


def compare_with(
    watch: ClockWatch, peers: Peers, metadata: ClusterMetadata, coordination: Coordination, node_id: int
) -> None:
    """Compare the clock with those of the other brokers and of coordination from now on."""

    def others() -> list[int]:
        return [number for number, one in metadata.image.brokers.items() if number != node_id and one.kafka is not None]

    watch.sources += [BrokerClocks(watch, peers, others).read, CoordinationClock(watch, coordination).read]


def _middle(asked_ms: int, answered_ms: int) -> tuple[int, int]:
    """The middle of a round trip, and half of its length."""
    half_ms = (answered_ms - asked_ms) // 2
    return asked_ms + half_ms, half_ms + 1
