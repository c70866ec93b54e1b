"""Bugs of other brokers, tested on tables."""

from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient
from tests.compat.storage import TABLES
from tests.compat.test_pitfalls import (
    member,
    operator,
    test_a_deleted_topic_takes_its_commits_along,
    test_a_topic_that_becomes_compacted_refuses_records_without_key,
    test_defaults_are_shown_as_defaults,
    test_kcat_as_a_group_continues_at_its_offsets,
    test_notes_of_commits_come_back_and_are_bounded,
    test_partitions_can_only_become_more,
    test_the_topics_own_limit_of_a_batch_counts,
    topic,
)
from tests.support.group_members import produce, quick_groups

from tidemill.testing import Broker

__all__ = [
    "member",
    "operator",
    "test_a_deleted_topic_takes_its_commits_along",
    "test_a_topic_that_becomes_compacted_refuses_records_without_key",
    "test_defaults_are_shown_as_defaults",
    "test_kcat_as_a_group_continues_at_its_offsets",
    "test_notes_of_commits_come_back_and_are_bounded",
    "test_partitions_can_only_become_more",
    "test_the_topics_own_limit_of_a_batch_counts",
    "topic",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True, flags=TABLES.flags, settings=quick_groups()) as broker:
        yield broker


def test_directories_are_listed_with_their_room(broker: Broker, topic: str) -> None:
    """There are no files to compare with: the size of a partition is the bytes of its batches."""
    produce(broker.bootstrap_servers, topic, 1, 5)
    asker = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        (node,) = asker.describe_log_dirs()
    finally:
        asker.close()
    (found,) = node["log_dirs"]
    assert 0 < found["usable_bytes"] <= found["total_bytes"]
    (reported,) = [each for each in found["topics"] if each["name"] == topic]
    sizes = {part["partition_index"]: part["partition_size"] for part in reported["partitions"]}
    assert sizes[0] > 5
    assert sizes[1] == 0
