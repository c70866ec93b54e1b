"""Every command's help has an example and explains every parameter."""

from typing import Any

import pytest

from tidemill.cli.completion import tree
from tidemill.cli.main import COMMANDS


def leaves(path: str, command: Any) -> list[tuple[str, Any]]:
    below = getattr(command, "commands", None)
    if not below:
        return [(path, command)]
    return [leaf for name, each in below.items() for leaf in leaves(f"{path} {name}".strip(), each)]


LEAVES = leaves("", tree({name: command.target for name, command in COMMANDS.items()}))
OURS = [leaf for leaf in LEAVES if leaf[0].split()[0] in {"topic", "produce", "consume", "group", "doctor", "serve"}]


@pytest.mark.parametrize(("path", "command"), OURS, ids=[path for path, _ in OURS])
def test_help_has_an_example_of_the_command_itself(path: str, command: Any) -> None:
    assert f"tidemill {path}" in command.help
    assert "Example: " in command.help


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[path for path, _ in LEAVES])
def test_every_parameter_is_explained(path: str, command: Any) -> None:
    unexplained = [each.name for each in command.params if not each.help and each.name != "help"]
    assert unexplained == [], path
