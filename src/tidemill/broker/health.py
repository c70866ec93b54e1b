"""How this broker stands, as it tells the others: healthy, degraded or inactive, why, and whom it serves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import structlog

from tidemill.broker.partitions import Partitions
from tidemill.clocks.watch import ClockWatch
from tidemill.cluster.core.image import Image
from tidemill.cluster.core.registration import DEGRADED, HEALTHY, INACTIVE
from tidemill.cluster.interface import CoordinationAway
from tidemill.cluster.membership import Membership
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.health import TimelinesState

DISK_FULL = "the disk is full: records are refused until there is room"
AWAY = "it is not there"
FOLDER_HINT = "to get the topic back, stop the broker and run: tidemill repair"
CLOCK = "the clock is in doubt ({}), nothing is deleted by time; see: tidemill cluster clock"
"""Kinds of reasons only: what brokers publish must not change with every look."""
TOPIC = "topic:"
"""Before the names of topics among those of timelines."""
READER_MS = 10_000
READERS_MAX = 100_000
"""So long after its last call a member of a group counts as served here."""

log = structlog.get_logger("tidemill.broker")


class BrokerHealth(NamedTuple):
    """A state and the reason for it."""

    state: str
    reason: str
    room: bool
    """Whether there is room for records."""


def own_health(
    partitions: Partitions,
    timelines: Dispatcher | None,
    failing: Sequence[str] = (),
    watch: ClockWatch | None = None,
    *,
    shared: bool,
) -> BrokerHealth:
    """What the others should know; in a cluster a broker whose disk failed counts as one that is not there."""
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
    health = timelines.health() if timelines is not None else None
    if health is not None and health.state is TimelinesState.DEGRADED:
        return BrokerHealth(DEGRADED, f"timelines: {'; '.join(health.reasons)}", True)
    if failing:
        return BrokerHealth(DEGRADED, failing[0], True)
    return BrokerHealth(HEALTHY, "", True)


def notes_of(partitions: Partitions, image: Image) -> list[str]:
    """What an operator should know although everything is served."""
    lost = (found for found in partitions.unknown if found.name not in image.by_name)
    return [f"the folder of {each.name} ({each.partitions} partitions) has no topic; {FOLDER_HINT}" for each in lost]


async def publish(membership: Membership, now: BrokerHealth, consumers: Mapping[str, int]) -> None:
    """Register what has changed; while coordination is away, the next call tries again."""
    try:
        await membership.remember()
        known = membership.registration
        if (known.state, known.reason) != (now.state, now.reason):
            log.warning("the state of this broker has changed", state=now.state, reason=now.reason)
        elif known.consumers == consumers:
            return
        await membership.announce(known.but(**now._asdict(), consumers=consumers))
    except CoordinationAway as error:
        log.warning("the state of this broker cannot be published yet", error=str(error))


class BrokerSummary(NamedTuple):
    """A broker of the cluster as everybody sees it."""

    broker: int
    roles: tuple[str, ...]
    state: str
    reason: str


def cluster_health(image: Image) -> list[BrokerSummary]:
    """Every broker that is or was there, or that should carry something: who is not there is inactive."""
    there = {node: BrokerSummary(node, one.roles, one.state, one.reason) for node, one in image.brokers.items()}
    carriers = {node for topic in image.by_name.values() for info in topic.partitions for node in info.replicas}
    roles = {node: known.roles for node, known in image.known.items()}
    away = [BrokerSummary(node, roles.get(node, ()), INACTIVE, AWAY) for node in {*carriers, *roles} - set(there)]
    return sorted([*there.values(), *away])


class Readers:
    """Members of groups that read topics by way of this broker, over gRPC."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._seen: dict[tuple[str, str], int] = {}

    def note(self, topics: Iterable[str], member: str) -> None:
        """A member called; it is not counted while there are `READERS_MAX` already."""
        now_ms, room = self._clock_ms(), max(0, READERS_MAX - len(self._seen))
        self._seen.update(((topic, member), now_ms) for topic in islice(topics, room))

    def counts(self) -> dict[str, int]:
        """How many members of late read each topic; who was not seen for a while is forgotten."""
        oldest_ms = self._clock_ms() - READER_MS
        self._seen = {key: seen_ms for key, seen_ms in self._seen.items() if seen_ms >= oldest_ms}
        found: dict[str, int] = {}
        for topic, _ in sorted(self._seen):
            found[TOPIC + topic] = found.get(TOPIC + topic, 0) + 1
        return found


def served(timelines: Dispatcher | None, readers: Readers) -> dict[str, int]:
    """How many consumers of each timeline and topic are connected here."""
    names = sorted(timelines.stats) if timelines is not None else []
    counts = {name: len(timelines.consumers(name)) for name in names} if timelines is not None else {}
    return {**{name: count for name, count in counts.items() if count}, **readers.counts()}
