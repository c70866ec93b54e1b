"""Connections that break and brokers that are killed, on tables: what passes on segment files has to pass here."""

from collections.abc import Iterator

import pytest
from tests.compat.storage import TABLES, Storage
from tests.compat.test_cuts import (
    proxy,
    test_a_transactional_producer_shows_each_transaction_whole_or_not_at_all,
    test_an_idempotent_producer_is_not_disturbed_by_kills_of_the_broker,
    test_an_idempotent_producer_writes_every_record_once_and_in_order,
)
from tests.compat.test_transactions import test_a_copy_loop_is_exactly_once_over_aborts_and_kills
from tests.support.cutting_proxy import CuttingProxy

from tidemill.testing import Broker

__all__ = [
    "proxy",
    "test_a_copy_loop_is_exactly_once_over_aborts_and_kills",
    "test_a_transactional_producer_shows_each_transaction_whole_or_not_at_all",
    "test_an_idempotent_producer_is_not_disturbed_by_kills_of_the_broker",
    "test_an_idempotent_producer_writes_every_record_once_and_in_order",
]


pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def storage() -> Storage:
    return TABLES


@pytest.fixture
def broker(proxy: CuttingProxy, storage: Storage) -> Iterator[Broker]:
    with Broker(process=True, flags={"advertise": proxy.address, **storage.flags}) as broker:
        proxy.target = broker.bootstrap_servers
        yield broker
