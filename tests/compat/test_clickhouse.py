"""The same tests as on segment files, on a broker that keeps its streams in tables of the embedded ClickHouse.

The tests are those of the other files, with this file's broker: what passes there has to pass here.
"""

from collections.abc import Iterator

import pytest
from tests.compat.clients import Aiokafka, Client, Confluent, KafkaPython
from tests.compat.crowd import quick_groups
from tests.compat.test_clients import (
    test_a_hundred_thousand_records_over_a_kill,
    test_admin,
    test_every_codec,
    test_from_every_kind_of_offset,
    test_idempotent,
    test_keys_headers_nulls_and_times,
    topic,
)
from tests.compat.test_groups_python import TestAiokafka, TestKafkaPython
from tests.compat.test_transactions import (
    test_a_zombie_is_fenced,
    test_aborted_records_are_never_shown,
    test_an_open_transaction_is_seen_by_nobody_who_asks_for_committed,
    test_offsets_of_a_transaction_become_visible_with_its_commit,
)

from tidemill.testing import Broker

__all__ = [
    "TestAiokafka",
    "TestKafkaPython",
    "test_a_hundred_thousand_records_over_a_kill",
    "test_a_zombie_is_fenced",
    "test_aborted_records_are_never_shown",
    "test_admin",
    "test_an_open_transaction_is_seen_by_nobody_who_asks_for_committed",
    "test_every_codec",
    "test_from_every_kind_of_offset",
    "test_idempotent",
    "test_keys_headers_nulls_and_times",
    "test_offsets_of_a_transaction_become_visible_with_its_commit",
    "topic",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # Without waiting for the disk: a kill of the process loses nothing that the system has.
    with Broker(process=True, flags={"streams": "chdb:?fsync=false"}, settings=quick_groups()) as broker:
        yield broker


@pytest.fixture(params=[Confluent, KafkaPython, Aiokafka], ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest, broker: Broker) -> Client:
    made: Client = request.param(broker.bootstrap_servers)
    return made
