"""Counts over an image of the cluster: who leads and carries how much, and which partitions lack something. Pure."""

from collections import Counter
from typing import NamedTuple

from tidemill.cluster.core.image import NO_BROKER, Image, PartitionInfo
from tidemill.model.topics import TopicPartition

SHORT_SHOWN_MAX = 100
"""The most partitions with a problem that are named; all are counted."""


class ClusterCounts(NamedTuple):
    """What one image says about partitions."""

    topics: int
    """Without internal ones."""
    partitions: int
    leads: Counter[int]
    replicas: Counter[int]
    in_sync: Counter[int]
    without_leader: int
    under_replicated: int
    under_min_isr: int
    short: tuple[tuple[TopicPartition, PartitionInfo], ...]
    """The first partitions without a leader or with a replica that is not in sync."""
    topics_with_problems: frozenset[str]
    """The topics of all partitions that lack something."""


def count_cluster(image: Image) -> ClusterCounts:
    """Count all partitions."""
    leads, replicas, in_sync = Counter[int](), Counter[int](), Counter[int]()
    offline: list[tuple[TopicPartition, PartitionInfo]] = []
    behind: list[tuple[TopicPartition, PartitionInfo]] = []
    troubled: set[str] = set()
    total = under_min_isr = 0
    for topic in image.by_name.values():
        needed = topic.settings.min_insync_replicas
        for info in topic.partitions:
            total += 1
            leads[info.leader] += 1
            replicas.update(info.replicas)
            in_sync.update(info.isr)
            if info.leader == NO_BROKER:
                offline.append((TopicPartition(topic.name, info.index), info))
            elif len(info.isr) < len(info.replicas):
                behind.append((TopicPartition(topic.name, info.index), info))
            under_min_isr += len(info.isr) < needed and info.leader != NO_BROKER
            if info.leader == NO_BROKER or len(info.isr) < max(len(info.replicas), needed):
                troubled.add(topic.name)
    return ClusterCounts(
        topics=sum(not topic.internal for topic in image.by_name.values()),
        partitions=total,
        leads=leads,
        replicas=replicas,
        in_sync=in_sync,
        without_leader=len(offline),
        under_replicated=sum(len(info.isr) < len(info.replicas) for _, info in offline) + len(behind),
        under_min_isr=under_min_isr,
        short=tuple([*sorted(offline), *sorted(behind)][:SHORT_SHOWN_MAX]),
        topics_with_problems=frozenset(troubled),
    )
