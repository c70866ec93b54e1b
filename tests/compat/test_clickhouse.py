"""The same tests as on segment files, on a broker that keeps its streams in tables of the embedded ClickHouse.

The tests are those of the other files, with this file's broker: what passes there has to pass here.
"""

import random
import time
from collections.abc import Iterator

import pytest
from tests.compat.clients import Aiokafka, Client, Confluent, KafkaPython, Sent
from tests.compat.storage import TABLES
from tests.compat.test_clients import (
    test_admin,
    test_every_codec,
    test_from_every_kind_of_offset,
    test_idempotent,
    test_keys_headers_nulls_and_times,
    topic,
)
from tests.compat.test_groups_python import TestAiokafka, TestKafkaPython
from tests.compat.test_transactions import (
    test_a_timeout_beyond_the_brokers_limit_is_refused,
    test_a_transaction_that_its_producer_left_is_aborted_in_time,
    test_a_zombie_is_fenced,
    test_aborted_records_are_never_shown,
    test_admin_tools_see_transactions_and_producers,
    test_offsets_of_a_transaction_become_visible_with_its_commit,
    test_readers_of_committed_records_do_not_see_an_open_transaction,
)
from tests.support.group_members import quick_groups

from tidemill.testing import Broker

MANY = 12_000
"""Enough for blocks that the compiled kernels read and write."""

__all__ = [
    "TestAiokafka",
    "TestKafkaPython",
    "test_a_timeout_beyond_the_brokers_limit_is_refused",
    "test_a_transaction_that_its_producer_left_is_aborted_in_time",
    "test_a_zombie_is_fenced",
    "test_aborted_records_are_never_shown",
    "test_admin",
    "test_admin_tools_see_transactions_and_producers",
    "test_every_codec",
    "test_from_every_kind_of_offset",
    "test_idempotent",
    "test_keys_headers_nulls_and_times",
    "test_offsets_of_a_transaction_become_visible_with_its_commit",
    "test_readers_of_committed_records_do_not_see_an_open_transaction",
    "topic",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True, flags=TABLES.flags, settings=quick_groups()) as broker:
        yield broker


@pytest.fixture(params=[Confluent, KafkaPython, Aiokafka], ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest, broker: Broker) -> Client:
    made: Client = request.param(broker.bootstrap_servers)
    return made


def test_many_records_over_a_kill(broker: Broker) -> None:
    """Byte for byte, and read back from rows: the broker that reads them has nothing of them in memory."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    now_ms = time.time_ns() // 1_000_000
    sent = [
        Sent(draw.randbytes(draw.randrange(8)) or None, draw.randbytes(draw.randrange(200)), (), now_ms)
        for _ in range(MANY)
    ]
    client = Confluent(broker.bootstrap_servers)
    client.create_topic("many", 1)
    client.produce("many", 0, sent, codec="lz4", idempotent=True)
    broker.kill()
    broker.restart()
    seen = client.consume("many", 0, 0, MANY)
    assert [(each.offset, each.key, each.value) for each in seen] == [
        (offset, each.key, each.value) for offset, each in enumerate(sent)
    ]
