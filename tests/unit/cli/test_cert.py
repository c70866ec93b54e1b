"""`tidemill cert create`: what it prints, and its wrong uses."""

from pathlib import Path

import pytest
from tests.support.command_line import CommandLine

WRONG_USE = 2


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine("", capfd, monkeypatch)


def test_a_broker_and_a_client(cli: CommandLine, tmp_path: Path) -> None:
    first = cli.fine("cert", "create", "--dir", "certs", "broker", "--host", "localhost", "--host", "127.0.0.1")
    assert [line.split()[0] for line in first.lines] == ["certs/ca.pem", "certs/broker.pem"]
    second = cli.fine("cert", "create", "--dir", "certs", "--client", "alice", "--days", "7", "--json").json()
    assert (second["kind"], second["name"], second["ca_created"]) == ("client", "alice", False)
    assert second["expires"].endswith("Z")
    assert sorted(path.name for path in (tmp_path / "certs").iterdir()) == [
        "alice.pem",
        "broker.pem",
        "ca.key",
        "ca.pem",
    ]


def test_default_hosts_are_this_machine(cli: CommandLine) -> None:
    assert cli.fine("cert", "create", "broker", "--json").json()["hosts"] == ["localhost", "127.0.0.1", "::1"]


def test_wrong_uses(cli: CommandLine) -> None:
    assert "--client USER" in cli.refused(WRONG_USE, "cert", "create")
    assert "--client USER" in cli.refused(WRONG_USE, "cert", "create", "a", "--client", "b")
    assert "leave it out" in cli.refused(WRONG_USE, "cert", "create", "--client", "b", "--host", "x")
    assert "cannot be the name" in cli.refused(WRONG_USE, "cert", "create", "../x")
    cli.fine("cert", "create", "broker")
    assert "--force" in cli.refused(WRONG_USE, "cert", "create", "broker")
    cli.fine("cert", "create", "broker", "--force")
