"""The Java client on a broker that keeps its streams in tables: the same scenarios, with the newest version."""

from collections.abc import Iterator

import pytest
from tests.compat.storage import TABLES
from tests.compat.test_java import VERSIONS, classpath, test_admin, test_codecs, test_group, test_transactions

from tidemill.testing import Broker

__all__ = ["classpath", "test_admin", "test_codecs", "test_group", "test_transactions"]

pytestmark = [
    pytest.mark.parametrize("classpath", VERSIONS[-1:], indirect=True, scope="module"),
    pytest.mark.long,
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True, flags=TABLES.flags) as broker:
        yield broker
