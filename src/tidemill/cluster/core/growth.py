"""Growth: more replicas for the broker's own topics, which may exist before all brokers of a cluster do.

A topic that is created while one broker runs has one replica. When other brokers have joined, its partitions get more
of them, up to the replication factor that the settings name. A partition never loses a replica here, and a requested
reassignment is left alone. Only a few partitions grow at a time. A partition whose new broker was lost before it had
copied anything gets another broker if there is one, and otherwise waits without further writes.

A topic that requires several in-sync replicas of a write (`min.insync.replicas`) requires more of them when it has
grown: all but one. That changes only while every replica of the topic is in sync, so that no partition becomes
unavailable by it.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from tidemill.cluster.core import election
from tidemill.cluster.core.changes import IsShared, StateChange, live_brokers, nothing
from tidemill.cluster.core.image import Image, PartitionInfo, Topic, TopicAltered

GROWING_MAX = 4
"""Partitions that get replicas at the same time, so that copying them does not slow down clients."""
MIN_INSYNC = "min.insync.replicas"


def growth(image: Image, copies: Mapping[str, int], is_shared: IsShared = nothing) -> Iterator[StateChange]:
    """Add replicas to partitions of these topics that have fewer than they should."""
    live = live_brokers(image)
    topics = [image.by_name[name] for name in copies if name in image.by_name and not is_shared(image.by_name[name])]
    free = GROWING_MAX - sum(_is_growing(info, live) for topic in topics for info in topic.partitions)
    for topic in topics:
        carried = Counter(dict.fromkeys(live, 0))
        carried.update(node for info in topic.partitions for node in info.replicas if node in live)
        for info in topic.partitions:
            if free <= 0:
                return
            after = _grown(info, copies[topic.name], image, carried)
            if after is not None:
                free -= 1
                carried.update(set(after.replicas) - set(info.replicas))
                yield StateChange(topic, info, after)


def required(image: Image, copies: Mapping[str, int], strict: Collection[str]) -> Iterator[Topic]:
    """The topics of `strict` that have grown, with the number of in-sync replicas that they require from now on."""
    for name in copies:
        topic = image.by_name.get(name)
        if topic is None or name not in strict or not all(map(_is_whole, topic.partitions)):
            continue
        fewest = min(copies[name], *(len(info.replicas) for info in topic.partitions))
        if topic.settings.min_insync_replicas < fewest - 1:
            overrides = {**topic.overrides, MIN_INSYNC: str(fewest - 1)}
            yield image.apply(TopicAltered(name, overrides)).by_name[name]


def _is_whole(info: PartitionInfo) -> bool:
    return not info.adding and not info.removing and set(info.isr) == set(info.replicas)


def _lost(info: PartitionInfo, live: Collection[int]) -> set[int]:
    """New replicas on brokers that are not available and have not copied the partition."""
    return {node for node in info.adding if node not in live and node not in info.isr}


def _is_growing(info: PartitionInfo, live: Collection[int]) -> bool:
    return bool(info.adding) and not _lost(info, live)


def _grown(info: PartitionInfo, wanted: int, image: Image, carried: Mapping[int, int]) -> PartitionInfo | None:
    """The partition with more replicas; None when it has enough, is being moved, or no broker can take one."""
    lost = _lost(info, carried)
    if info.removing or (info.adding and not lost) or info.leader not in carried:
        return None
    stay = [node for node in info.replicas if node not in lost]
    racks = {node: image.brokers[node].rack for node in carried}
    while len(stay) < wanted:
        used = {racks.get(node) for node in stay}
        free = [node for node in carried if node not in info.replicas and node not in stay]
        if not free:
            break
        stay.append(min(free, key=lambda node: (racks[node] in used, carried[node], node)))
    if set(stay) <= set(info.replicas):  # no broker is free, also not for one that was lost
        return None
    return election.reassign(info, tuple(stay))
