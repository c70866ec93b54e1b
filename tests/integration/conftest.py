"""Shared fixtures of the tests of a whole node."""

from collections.abc import Iterator

import pytest
from tests.support.command_line import CommandLine

from tidemill.testing import Broker


@pytest.fixture(scope="module")
def cli_broker() -> Iterator[Broker]:
    """One broker for the commands of a test file."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def tidemill(cli_broker: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line."""
    return CommandLine(cli_broker.bootstrap_servers, capfd, monkeypatch)
