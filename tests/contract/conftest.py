"""Shared setup of the contract suites."""

from collections.abc import Iterator

import pytest
from tests.support.etcd import Etcd, running_etcd
from tests.support.postgres import Postgres, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def etcd() -> Iterator[Etcd]:
    with running_etcd() as server:
        yield server
