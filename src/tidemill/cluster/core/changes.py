"""The changes that the controller makes to an image, as a list, decided without IO.

The same image always gives the same list, and an image with all changes applied gives an empty list. So when a
controller dies half-way, its successor computes and makes the remaining changes.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from tidemill.cluster.core import election
from tidemill.cluster.core.balance import rebalance
from tidemill.cluster.core.image import NO_BROKER, Image, PartitionInfo, Topic
from tidemill.cluster.core.registration import INACTIVE, Registration
from tidemill.model.topics import TopicPartition

IsShared = Callable[[Topic], bool]
"""Whether all brokers share the records of a topic, so that any of them can lead it without a copy."""


def nothing(_: Topic) -> bool:
    """No topic is shared, because each broker has its own disk."""
    return False


class StateChange(NamedTuple):
    """A partition with its state before and after."""

    topic: Topic
    before: PartitionInfo
    after: PartitionInfo

    @property
    def unclean(self) -> bool:
        """Whether the new leader may lack records."""
        known = self.after.leader in self.before.replicas  # otherwise the topic is shared: any broker has all records
        return known and self.after.leader not in (self.before.leader, NO_BROKER, *self.before.isr)


def live_brokers(image: Image) -> frozenset[int]:
    """The brokers that may lead: they carry partitions, are reachable, and have a working disk with free space."""
    return frozenset(node for node, each in image.brokers.items() if _reachable(each) and each.room)


def full_brokers(image: Image) -> frozenset[int]:
    """The brokers that may lead only when no other can: they can be read, but their disk is full."""
    return frozenset(node for node, each in image.brokers.items() if _reachable(each) and not each.room)


def plan(image: Image, names: Iterable[str] | None = None, is_shared: IsShared = nothing) -> Iterator[StateChange]:
    """The changes for these topics, or for all: elect missing leaders, and finish reassignments."""
    live, full = live_brokers(image), full_brokers(image)
    chosen = _chosen(image, names)
    yield from _handed_over(image, [topic for topic in chosen if is_shared(topic)], live, is_shared)
    for topic in chosen:
        if is_shared(topic):
            continue
        unclean = topic.settings.unclean_leader_election_enable
        for info in topic.partitions:
            after = election.settle(info, live) or election.elect(info, live, full, unclean=unclean)
            if after is not None:
                yield StateChange(topic, info, after)


def _handed_over(
    image: Image, topics: Iterable[Topic], live: frozenset[int], is_shared: IsShared
) -> Iterator[StateChange]:
    """Assign shared partitions without a leader to the broker that leads the fewest; all brokers have the records."""
    waiting = [(topic, info) for topic in topics for info in topic.partitions if info.leader not in live]
    if not waiting or not live:
        return
    leads = Counter(dict.fromkeys(live, 0))
    shared = (topic for topic in image.by_name.values() if is_shared(topic))
    leads.update(info.leader for topic in shared for info in topic.partitions if info.leader in live)
    for topic, info in waiting:
        chosen = min(live, key=lambda node: (leads[node], node))
        leads[chosen] += 1
        after = election.hand_to(info, chosen)
        if after is not None:
            yield StateChange(topic, info, after)


def spread(image: Image, is_shared: IsShared) -> Iterator[StateChange]:
    """The changes after which all brokers lead about the same number of shared partitions."""
    found = {
        TopicPartition(topic.name, info.index): (topic, info)
        for topic in image.by_name.values()
        if is_shared(topic)
        for info in topic.partitions
    }
    live = live_brokers(image)
    led = {key: (info.leader,) for key, (_, info) in found.items() if info.leader in live}
    for key, (node_id,) in rebalance(led, sorted(live)).items():
        topic, info = found[key]
        after = election.hand_to(info, node_id)
        if after is not None:
            yield StateChange(topic, info, after)


def preferred(image: Image) -> Iterator[StateChange]:
    """The changes after which every partition is led by its first replica, where that one is in sync."""
    live = live_brokers(image)
    for topic in image.by_name.values():
        for info in topic.partitions:
            after = election.prefer(info, live)
            if after is not None:
                yield StateChange(topic, info, after)


def retirements(
    image: Image, node_id: int, *, lost: bool = False, lost_partitions: Collection[tuple[str, int]] = ()
) -> Iterator[StateChange]:
    """The changes before a broker stops or rejoins; `lost_partitions` have lost their records."""
    live = live_brokers(image) - {node_id}
    for topic in image.by_name.values():
        for info in topic.partitions:
            if node_id == info.leader or node_id in info.isr:
                gone = lost or (topic.name, info.index) in lost_partitions
                after = election.retire(info, node_id, live, lost=gone)
                if after is not None:
                    yield StateChange(topic, info, after)


def _reachable(broker: Registration) -> bool:
    return broker.carries and broker.kafka is not None and broker.state != INACTIVE


def _chosen(image: Image, names: Iterable[str] | None) -> list[Topic]:
    if names is None:
        return list(image.by_name.values())
    return [image.by_name[name] for name in names if name in image.by_name]
