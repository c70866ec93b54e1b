"""The Java client on a broker that keeps its streams in tables: the same scenarios, a broker for each version."""

from collections.abc import Iterator

import pytest
from tests.compat.storage import TABLES, Storage
from tests.compat.test_java import classpath, test_admin, test_codecs, test_group, test_transactions
from tests.compat.test_transactions_java import test_a_copy_loop_is_exactly_once_over_aborts_and_kills

from tidemill.testing import Broker

__all__ = [
    "classpath",
    "test_a_copy_loop_is_exactly_once_over_aborts_and_kills",
    "test_admin",
    "test_codecs",
    "test_group",
    "test_transactions",
]


@pytest.fixture(scope="module")
def storage() -> Storage:
    return TABLES


@pytest.fixture(scope="module")
def broker(storage: Storage, classpath: str) -> Iterator[Broker]:
    with Broker(process=True, flags=storage.flags) as broker:
        yield broker
