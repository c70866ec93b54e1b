"""The health that this broker publishes to the others: its state, the reason, and how many consumers it serves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import structlog

from tidemill.broker.partitions import Partitions
from tidemill.clocks.watch import ClockWatch
from tidemill.cluster.core.image import Image
from tidemill.cluster.core.peer_reach import PeersVerdict
from tidemill.cluster.core.registration import DEGRADED, HEALTHY, INACTIVE
from tidemill.cluster.interface import CoordinationAway
from tidemill.cluster.membership import Membership
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.health import TimelinesState

DISK_FULL = "the disk is full: records are rejected until space is free"
AWAY = "the broker is not running or cannot be reached"
FOLDER_HINT = "to get the topic back, stop the broker and run: tidemill repair"
CLOCK = "the clock is in doubt ({}), so nothing is deleted by time; see: tidemill cluster clock"
"""Only kinds of reasons: a published reason must not change with every check."""
TOPIC = "topic:"
"""The prefix of topic names among timeline names."""
READER_MS = 10_000
READERS_MAX = 100_000
"""How long after its last call a group member counts as served here."""

log = structlog.get_logger("tidemill.broker")


class CertificateNote(NamedTuple):
    """A certificate of this broker that is damaged, has expired, or expires soon."""

    certificate: str
    reason: str
    next_step: str


class BrokerHealth(NamedTuple):
    """A state and the reason for it."""

    state: str
    reason: str
    room: bool
    """Whether the disk has space for records."""


def own_health(
    partitions: Partitions,
    timelines: Dispatcher | None,
    failing: Sequence[str] = (),
    watch: ClockWatch | None = None,
    *,
    peers: PeersVerdict = PeersVerdict(),  # noqa: B008 -- immutable
    shared: bool,
) -> BrokerHealth:
    """The health of this broker; in a cluster a broker whose disk failed is inactive."""
    full = partitions.store.full or partitions.lacks_room
    broken = partitions.broken()
    if broken:
        (topic, index), error = next(iter(broken.items()))
        failed = any(each.failed is not None and not each.away for each in partitions)
        return BrokerHealth(INACTIVE if failed and shared else DEGRADED, f"{topic}-{index}: {error}", not full)
    if full:
        return BrokerHealth(DEGRADED, DISK_FULL, False)
    kinds = () if watch is None else watch.kinds()
    if kinds:
        return BrokerHealth(DEGRADED, CLOCK.format(", ".join(kinds)), True)
    if peers:
        return BrokerHealth(DEGRADED, peers.text(), True)
    health = timelines.health() if timelines is not None else None
    if health is not None and health.state is TimelinesState.DEGRADED:
        return BrokerHealth(DEGRADED, f"timelines: {'; '.join(health.reasons)}", True)
    if failing:
        return BrokerHealth(DEGRADED, failing[0], True)
    return BrokerHealth(HEALTHY, "", True)


def notes_of(partitions: Partitions, image: Image, moves: Iterable[str] = ()) -> list[str]:
    """Notes for the operator about problems that do not affect clients."""
    lost = (found for found in partitions.unknown if found.name not in image.by_name)
    folders = [
        f"the directory of {each.name} ({each.partitions} partitions) has no topic; {FOLDER_HINT}" for each in lost
    ]
    return [*folders, *moves]


async def publish(membership: Membership, now: BrokerHealth, consumers: Mapping[str, int]) -> None:
    """Publish a changed state; while coordination is unreachable, the next call tries again."""
    try:
        await membership.remember()
        known = membership.registration
        if (known.state, known.reason) != (now.state, now.reason):
            log.warning("broker_state_changed", state=now.state, reason=now.reason)
        elif known.consumers == consumers:
            return
        await membership.announce(known.but(**now._asdict(), consumers=consumers))
    except CoordinationAway as error:
        log.warning("broker_state_publish_failed", error=str(error))


class BrokerSummary(NamedTuple):
    """A broker of the cluster, with its published state."""

    broker: int
    roles: tuple[str, ...]
    state: str
    reason: str


def cluster_health(image: Image) -> list[BrokerSummary]:
    """Every broker that is or was a member, or that has a replica; a missing broker is inactive."""
    there = {node: BrokerSummary(node, one.roles, one.state, one.reason) for node, one in image.brokers.items()}
    carriers = {node for topic in image.by_name.values() for info in topic.partitions for node in info.replicas}
    roles = {node: known.roles for node, known in image.known.items()}
    away = [BrokerSummary(node, roles.get(node, ()), INACTIVE, AWAY) for node in {*carriers, *roles} - set(there)]
    return sorted([*there.values(), *away])


class Readers:
    """Group members that read topics through this broker, over gRPC."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._seen: dict[tuple[str, str], int] = {}

    def note(self, topics: Iterable[str], member: str) -> None:
        """Count a member that called; ignored while there are `READERS_MAX` already."""
        now_ms, free = self._clock_ms(), max(0, READERS_MAX - len(self._seen))
        self._seen.update(((topic, member), now_ms) for topic in islice(topics, free))

    def forget(self, topics: Iterable[str], member: str) -> None:
        """Drop a member that was sent to another broker; if it calls again, it is counted again."""
        for topic in topics:
            self._seen.pop((topic, member), None)

    def counts(self) -> dict[str, int]:
        """The number of recent members per topic; older ones are dropped."""
        oldest_ms = self._clock_ms() - READER_MS
        self._seen = {key: seen_ms for key, seen_ms in self._seen.items() if seen_ms >= oldest_ms}
        found: dict[str, int] = {}
        for topic, _ in sorted(self._seen):
            found[TOPIC + topic] = found.get(TOPIC + topic, 0) + 1
        return found


def served(timelines: Dispatcher | None, readers: Readers) -> dict[str, int]:
    """The number of consumers of each timeline and topic that are connected here."""
    return {**(timelines.served() if timelines is not None else {}), **readers.counts()}
