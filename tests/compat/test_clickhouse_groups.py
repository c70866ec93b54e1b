"""The tests of groups with librdkafka, on a broker that keeps its streams, and so its journals, in tables."""

from collections.abc import Iterator

import pytest
from tests.compat.storage import TABLES, Storage
from tests.compat.test_groups import (
    impatient,
    protocol,
    test_a_group_in_the_hands_of_an_operator,
    test_a_later_consumer_continues_at_the_committed_offsets,
    test_a_member_that_dies_is_replaced_after_its_session,
    test_a_member_that_is_paused_is_passed_over_and_comes_back,
    test_a_pattern_finds_topics_that_are_made_later,
    test_a_running_group_changes_its_protocol_and_back,
    test_a_static_member_that_restarts_starts_no_rebalance,
    test_cooperative_members_keep_unmoved_partitions,
    test_members_come_and_go_and_nothing_is_left_out,
    test_new_partitions_are_shared_out,
    test_the_broker_assigns_as_it_is_asked,
    topic,
)
from tests.support.group_members import quick_groups

from tidemill.testing import Broker

__all__ = [
    "impatient",
    "protocol",
    "test_a_group_in_the_hands_of_an_operator",
    "test_a_later_consumer_continues_at_the_committed_offsets",
    "test_a_member_that_dies_is_replaced_after_its_session",
    "test_a_member_that_is_paused_is_passed_over_and_comes_back",
    "test_a_pattern_finds_topics_that_are_made_later",
    "test_a_running_group_changes_its_protocol_and_back",
    "test_a_static_member_that_restarts_starts_no_rebalance",
    "test_cooperative_members_keep_unmoved_partitions",
    "test_members_come_and_go_and_nothing_is_left_out",
    "test_new_partitions_are_shared_out",
    "test_the_broker_assigns_as_it_is_asked",
    "topic",
]


@pytest.fixture(scope="module")
def storage() -> Storage:
    return TABLES


@pytest.fixture(scope="module")
def broker(storage: Storage) -> Iterator[Broker]:
    with Broker(process=True, flags=storage.flags, settings=quick_groups()) as broker:
        yield broker
