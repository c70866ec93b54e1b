"""The lag of a group in a topic is the sum, and the largest, over its partitions."""

from collections.abc import Iterable

from tidemill.groups.core.lag import OTHERS, PAIRS_MAX, PartitionLag, TopicLag, TopicLags
from tidemill.groups.core.overview import CommittedOffset
from tidemill.model.topics import TopicPartition


def lag(group: str, topic: str, partition: int, records: int, seconds: float | None) -> PartitionLag:
    return PartitionLag(CommittedOffset(group, TopicPartition(topic, partition), 0), records, seconds)


def topic_lags(lags: Iterable[PartitionLag], pairs_max: int = PAIRS_MAX) -> dict[tuple[str, str], TopicLag]:
    found = TopicLags(pairs_max)
    for each in lags:
        found.add(each)
    return found.by_pair


def test_sum_and_largest() -> None:
    found = topic_lags(
        [lag("g", "t", 0, 3, 1.5), lag("g", "t", 1, 5, None), lag("g", "u", 0, 0, 0.0), lag("h", "t", 0, 1, None)]
    )
    assert found == {
        ("g", "t"): TopicLag(8, 5, 1.5),
        ("g", "u"): TopicLag(0, 0, 0.0),
        ("h", "t"): TopicLag(1, 1, None),
    }


def test_the_number_of_pairs_is_bounded() -> None:
    found = topic_lags((lag(f"g{number}", "t", 0, 1, 2.0) for number in range(10)), pairs_max=4)
    assert len(found) == 5
    assert found[OTHERS] == TopicLag(6, 1, 2.0)
    assert found["g3", "t"] == TopicLag(1, 1, 2.0)


def test_topics_of_a_group_are_added_up() -> None:
    first, second = TopicLag(8, 5, 1.5), TopicLag(3, 2, 4.0)
    assert first.plus_topic(second) == second.plus_topic(first) == TopicLag(11, 5, 4.0)
    unknown = TopicLag(2, 2, None)
    assert first.plus_topic(unknown) == unknown.plus_topic(first) == TopicLag(10, 5, 1.5)
    assert unknown.plus_topic(unknown) == TopicLag(4, 2, None)
