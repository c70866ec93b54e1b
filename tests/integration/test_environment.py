"""Environment variables: those of clients, those that a broker binds, and those that Kubernetes injects."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import typer

from tidemill.cli.completion import tree
from tidemill.cli.main import COMMANDS
from tidemill.testing.child import Child

TIMEOUT_S = 60
QUIET = {"kafka": "127.0.0.1:0", "grpc": "127.0.0.1:0", "http": "127.0.0.1:0"}
SERVICES = ("TIDEMILL", "TIDEMILL_HTTP", "TIDEMILL_KAFKA_BOOTSTRAP", "TIDEMILL_0")
BOUND = {
    "TIDEMILL_KAFKA": "0.0.0.0:1",
    "TIDEMILL_GRPC": "0.0.0.0:1",
    "TIDEMILL_HTTP": "0.0.0.0:1",
    "TIDEMILL_ADVERTISE": "nowhere.example:1",
    "TIDEMILL_CONFIG": "/nowhere.toml",
}
"""What a broker reads. In the environment of a client they must not matter."""
CLIENT_VARIABLES = {"TIDEMILL_BOOTSTRAP", "TIDEMILL_BOOTSTRAP_GRPC", "TIDEMILL_BOOTSTRAP_HTTP"}


def injected() -> dict[str, str]:
    """The variables that Kubernetes sets for services, two of them with the names of settings."""
    found: dict[str, str] = {}
    for service in SERVICES:
        found |= {
            f"{service}_SERVICE_HOST": "10.96.0.7",
            f"{service}_SERVICE_PORT": "9092",
            f"{service}_SERVICE_PORT_KAFKA": "9092",
            f"{service}_PORT": "tcp://10.96.0.7:9092",
            f"{service}_PORT_9092_TCP": "tcp://10.96.0.7:9092",
            f"{service}_PORT_9092_TCP_PROTO": "tcp",
            f"{service}_PORT_9092_TCP_PORT": "9092",
            f"{service}_PORT_9092_TCP_ADDR": "10.96.0.7",
        }
    return found


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A broker that was started with the injected variables, and the addresses for its clients."""
    child = Child({**QUIET, "data-dir": str(tmp_path_factory.mktemp("broker"))}, {}, injected())
    try:
        found = child.start()
        yield {
            "TIDEMILL_BOOTSTRAP": str(found["kafka"]),
            "TIDEMILL_BOOTSTRAP_GRPC": str(found["grpc"]),
            "TIDEMILL_BOOTSTRAP_HTTP": str(found["http"]),
        }
    finally:
        child.stop()


def run(words: str, environ: Mapping[str, str], folder: Path) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    command = [sys.executable, "-m", "tidemill", *words.split()]
    return subprocess.run(
        command, cwd=folder, env={**clean, **environ}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.mark.parametrize(
    "words",
    [
        "topic create orders",
        "user list",
        "group list",
        "timeline create reminders",
        "schedule reminders --in 1h tea",
        "sql --json SELECT(1)",
        "cluster status",
    ],
)
def test_commands_find_the_broker_by_the_variables_of_clients(
    addresses: dict[str, str], tmp_path: Path, words: str
) -> None:
    ran = run(words, {**addresses, **injected(), **BOUND}, tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("words", ["topic list", "timeline list", "sql SELECT(1)"])
def test_without_them_a_command_uses_the_default_address(tmp_path: Path, words: str) -> None:
    """And not an address that a broker binds: 0.0.0.0 is no address to connect to."""
    said = run(words, {**injected(), **BOUND}, tmp_path).stderr
    assert "0.0.0.0" not in said
    assert "nowhere" not in said


def test_commands_read_no_other_variables() -> None:
    root = tree({name: command.target for name, command in COMMANDS.items()})
    found = {}
    for path, command in _commands("tidemill", root):
        for option in command.params:
            if option.envvar:
                found[f"{path} {option.opts[0]}"] = option.envvar
            assert "--bootstrap" not in option.opts or option.envvar == "TIDEMILL_BOOTSTRAP", path
    assert set(found.values()) == CLIENT_VARIABLES
    assert len(found) > 30


def _commands(path: str, command: typer.core.TyperCommand) -> Iterator[tuple[str, typer.core.TyperCommand]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(f"{path} {name}", inner)
