"""Shared fixtures of the tests of a whole node."""

from collections.abc import Iterator

import pytest
from tests.support.certificates import Authority
from tests.support.command_line import CommandLine
from tests.support.tokens import Issuer

from tidemill.testing import Broker


@pytest.fixture(scope="module")
def cli_broker() -> Iterator[Broker]:
    """One broker for the commands of a test file."""
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority of a test file."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Issuer, str]:
    """An issuer of tokens, and the address of its keys."""
    made = Issuer("one")
    return made, made.publish(tmp_path_factory.mktemp("keys") / "keys.json")


@pytest.fixture
def tidemill(cli_broker: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line."""
    return CommandLine(cli_broker.bootstrap_servers, capfd, monkeypatch)
