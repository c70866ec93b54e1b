"""Partitions of a topic that have a problem."""

from uuid import UUID

from tidemill.cluster.core.image import NO_BROKER, Image, PartitionInfo, TopicCreated
from tidemill.servers.http.core.cluster_counts import count_cluster
from tidemill.servers.http.core.topic_health import TopicHealth, health_of_topic

HEALTHY = PartitionInfo(0, 1, (1, 2, 3), (1, 2, 3), 0)
BEHIND = PartitionInfo(1, 1, (1, 2, 3), (1, 2), 0)
ALONE = PartitionInfo(2, 1, (1, 2, 3), (1,), 0)
OFFLINE = PartitionInfo(3, NO_BROKER, (1, 2, 3), (1,), 0)


def image_of(*topics: tuple[str, tuple[PartitionInfo, ...]]) -> Image:
    image = Image()
    for number, (name, partitions) in enumerate(topics):
        image = image.apply(TopicCreated(name, UUID(int=number), partitions, {"min.insync.replicas": "2"}))
    return image


def test_each_problem_is_counted() -> None:
    image = image_of(("orders", (HEALTHY, BEHIND, ALONE, OFFLINE)))
    assert health_of_topic(image.by_name["orders"]) == TopicHealth(1, 3, 1)


def test_a_healthy_topic_has_no_problem() -> None:
    image = image_of(("orders", (HEALTHY,)))
    assert health_of_topic(image.by_name["orders"]) == TopicHealth(0, 0, 0)


def test_the_topics_with_a_problem_are_those_whose_health_has_one() -> None:
    single = PartitionInfo(0, 1, (1,), (1,), 0)  # in sync, and too few for min.insync.replicas
    image = image_of(("a", (HEALTHY,)), ("b", (BEHIND,)), ("c", (OFFLINE,)), ("d", (single,)))
    troubled = {name for name, topic in image.by_name.items() if any(health_of_topic(topic))}
    assert count_cluster(image).topics_with_problems == troubled == {"b", "c", "d"}
