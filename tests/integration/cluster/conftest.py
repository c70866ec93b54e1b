"""One cluster of three brokers for all tests that leave it unchanged."""

from collections.abc import Iterator

import pytest
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.command_line import CommandLine


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with running_brokers() as cluster:
        yield cluster


@pytest.fixture
def tidemill(brokers: Brokers, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(brokers.bootstrap, capsys, monkeypatch)
