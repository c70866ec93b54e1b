"""What is wrong with a topic: partitions without a leader, or with too few replicas in sync. Pure."""

from typing import NamedTuple

from tidemill.cluster.core.image import NO_BROKER, PartitionInfo, Topic


class TopicHealth(NamedTuple):
    """The partitions of one topic that have a problem, by problem."""

    without_leader: int
    under_replicated: int
    under_min_isr: int
    """With a leader that refuses writes with acks=all."""


def health_of_topic(topic: Topic) -> TopicHealth:
    """Count the partitions with a problem."""
    needed = topic.settings.min_insync_replicas
    return TopicHealth(
        without_leader=sum(each.leader == NO_BROKER for each in topic.partitions),
        under_replicated=sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
        under_min_isr=sum(_refuses_writes(each, needed) for each in topic.partitions),
    )


def _refuses_writes(partition: PartitionInfo, needed: int) -> bool:
    return partition.leader != NO_BROKER and len(partition.isr) < needed
