"""Changes that the controller makes: what follows from an image, as a list, decided without IO.

The same image always gives the same list, and an image in which all of it was done gives an empty one; so a controller
that dies half way leaves nothing behind that its successor would not do.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from tidemill.cluster.core import election
from tidemill.cluster.core.balance import rebalance
from tidemill.cluster.core.image import NOBODY, Image, PartitionInfo, Topic
from tidemill.cluster.core.registration import INACTIVE, Registration
from tidemill.model.topics import TopicPartition

IsShared = Callable[[Topic], bool]
"""Whether all brokers see the records of a topic, so that any of them can lead it without a copy."""


def nothing(_: Topic) -> bool:
    """No topic is shared: each broker has its own disk."""
    return False


class StateChange(NamedTuple):
    """A partition is to become another."""

    topic: Topic
    before: PartitionInfo
    after: PartitionInfo

    @property
    def unclean(self) -> bool:
        """Whether somebody leads who may lack records."""
        known = self.after.leader in self.before.replicas  # else it took over what is there for all
        return known and self.after.leader not in (self.before.leader, NOBODY, *self.before.isr)


def live_brokers(image: Image) -> frozenset[int]:
    """Who may lead: brokers that carry messages, can be reached, have not lost their disk and have room on it."""
    return frozenset(node for node, each in image.brokers.items() if _reachable(each) and each.room)


def full_brokers(image: Image) -> frozenset[int]:
    """Who may lead only where nobody else can: brokers that can be read from, and whose disk is full."""
    return frozenset(node for node, each in image.brokers.items() if _reachable(each) and not each.room)


def plan(image: Image, names: Iterable[str] | None = None, is_shared: IsShared = nothing) -> Iterator[StateChange]:
    """What has to change in these topics, or in all: leaders for the leaderless, and moves that can be finished."""
    live, full = live_brokers(image), full_brokers(image)
    chosen = _chosen(image, names)
    yield from _handed_on(image, [topic for topic in chosen if is_shared(topic)], live, is_shared)
    for topic in chosen:
        if is_shared(topic):
            continue
        unclean = topic.settings.unclean_leader_election_enable
        for info in topic.partitions:
            after = election.settle(info, live) or election.elect(info, live, full, unclean=unclean)
            if after is not None:
                yield StateChange(topic, info, after)


def _handed_on(
    image: Image, topics: Iterable[Topic], live: frozenset[int], is_shared: IsShared
) -> Iterator[StateChange]:
    """Partitions without a leader go to whoever leads fewest: the records are there for all."""
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
    """What has to change so that all brokers lead about as many of the partitions that all of them see."""
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


def growth(image: Image, copies: Mapping[str, int], is_shared: IsShared = nothing) -> Iterator[StateChange]:
    """Topics that were made when there were fewer brokers than they want copies: the new ones carry them too."""
    live = live_brokers(image)
    for name, wanted in copies.items():
        topic = image.by_name.get(name)
        if topic is None or is_shared(topic):
            continue
        carried = Counter(dict.fromkeys(live, 0))
        carried.update(node for info in topic.partitions for node in info.replicas if node in live)
        for info in topic.partitions:
            missing = min(wanted, len(live)) - len(info.replicas)
            if missing <= 0 or info.adding or info.removing:
                continue
            free = sorted(live - set(info.replicas), key=lambda node: (carried[node], node))[:missing]
            carried.update(free)
            after = election.reassign(info, (*info.replicas, *free))
            if after is not None:
                yield StateChange(topic, info, after)


def preferred(image: Image) -> Iterator[StateChange]:
    """What has to change so that every partition is led by its first replica, where that one is in sync."""
    live = live_brokers(image)
    for topic in image.by_name.values():
        for info in topic.partitions:
            after = election.prefer(info, live)
            if after is not None:
                yield StateChange(topic, info, after)


def retirements(
    image: Image, node_id: int, *, lost: bool = False, lost_partitions: Collection[tuple[str, int]] = ()
) -> Iterator[StateChange]:
    """What has to change before a broker stops, or before it comes back; `lost_partitions` have lost their records."""
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
