"""Counts over an image: leaders, replicas, and partitions that lack something."""

from collections import Counter
from uuid import UUID

from tidemill.cluster.core.image import NO_BROKER, Image, PartitionInfo, Topic
from tidemill.model.topic_settings import parse
from tidemill.model.topics import TopicPartition
from tidemill.servers.http.core.cluster_counts import SHORT_SHOWN_MAX, count_cluster


def topic(name: str, *partitions: PartitionInfo, min_isr: int = 1) -> Topic:
    overrides = {"min.insync.replicas": str(min_isr)}
    return Topic(name, UUID(int=1), partitions, overrides, parse(overrides))


def partition(index: int, leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo(index, leader, replicas, isr, 0)


def image(*topics: Topic) -> Image:
    return Image(by_name={each.name: each for each in topics})


def test_every_partition_is_counted_where_it_is_led_and_kept() -> None:
    found = count_cluster(
        image(
            topic("a", partition(0, 1, (1, 2), (1, 2)), partition(1, 2, (2, 1), (2, 1)), min_isr=2),
            topic("__consumer_offsets", partition(0, 1, (1,), (1,))),
        )
    )
    assert (found.topics, found.partitions) == (1, 3)
    assert found.leads == Counter({1: 2, 2: 1})
    assert found.replicas == found.in_sync == Counter({1: 3, 2: 2})
    assert (found.without_leader, found.under_replicated, found.under_min_isr) == (0, 0, 0)
    assert (found.short, found.topics_with_problems) == ((), frozenset())


def test_partitions_that_lack_something_are_counted_by_what_they_lack() -> None:
    offline = partition(0, NO_BROKER, (1, 2), (1,))
    behind = partition(1, 1, (1, 2), (1,))
    refused = partition(0, 1, (1,), (1,))
    found = count_cluster(
        image(topic("whole", partition(0, 1, (1,), (1,))), topic("a", behind, offline), topic("b", refused, min_isr=2))
    )
    assert (found.without_leader, found.under_replicated, found.under_min_isr) == (1, 2, 1)
    assert found.short == ((TopicPartition("a", 0), offline), (TopicPartition("a", 1), behind))
    assert found.topics_with_problems == {"a", "b"}
    assert found.in_sync == Counter({1: 4})


def test_only_the_first_partitions_are_named_and_those_without_a_leader_first() -> None:
    behind = [partition(index, 1, (1, 2), (1,)) for index in range(SHORT_SHOWN_MAX)]
    offline = partition(0, NO_BROKER, (1, 2), (1, 2))
    found = count_cluster(image(topic("a", *behind), topic("z", offline)))
    assert len(found.short) == SHORT_SHOWN_MAX
    assert found.short[0] == (TopicPartition("z", 0), offline)
    assert (found.under_replicated, found.without_leader) == (SHORT_SHOWN_MAX, 1)
