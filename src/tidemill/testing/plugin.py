"""pytest fixtures. pytest finds them by itself wherever Tidemill is installed.

`tidemill_broker` is a running broker without topics and groups. One broker serves the whole session and is reset before
each test that uses it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidemill.testing.broker import Broker


@pytest.fixture(scope="session")
def tidemill_session_broker() -> "Iterator[Broker]":
    """The broker behind `tidemill_broker`. Used directly, it keeps the data of earlier tests."""
    from tidemill.testing.broker import Broker  # noqa: PLC0415 -- pytest loads this module in every session

    with Broker() as broker:
        yield broker


@pytest.fixture
def tidemill_broker(tidemill_session_broker: "Broker") -> "Broker":
    """A running broker without topics and groups."""
    tidemill_session_broker.reset()
    return tidemill_session_broker
