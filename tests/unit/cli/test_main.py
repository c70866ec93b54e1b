"""The way into every command: help, exit codes, and failures in one line."""

import re
from importlib import import_module
from typing import Any

import pytest
import typer

from tidemill import __version__
from tidemill.cli import main as command_line
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.main import COMMANDS, FAILED, FINE, INTERRUPTED, WRONG_USE, Command, main
from tidemill.settings import ROWS

sub = typer.Typer()


@sub.command()
def fails(kind: str) -> None:
    errors: dict[str, BaseException] = {
        "failed": CommandFailed("it did not work;\ntry again"),
        "wrong": WrongUse("not like this"),
        "interrupted": KeyboardInterrupt(),
        "abort": typer.Abort(),
        "bug": ZeroDivisionError(),
        "exit": typer.Exit(3),
        "missing": FileNotFoundError(2, "No such file or directory", "here.txt"),
    }
    raise errors[kind]


@sub.command()
def works(number: int) -> None:
    assert number == 7


@pytest.fixture
def _sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "sample", Command(f"{__name__}:sub", "A sample."))
    real = import_module
    monkeypatch.setattr("importlib.import_module", lambda name: _here() if name == __name__ else real(name))


def _here() -> Any:
    class Here:
        pass

    here: Any = Here()
    here.sub = sub
    return here


def plain(text: str) -> str:
    """Without the colours that some surroundings force."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == FINE
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in COMMANDS)
    assert main([]) == WRONG_USE
    assert main(["--version"]) == FINE
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_loads_and_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == FINE
    assert f"tidemill {name}" in plain(capsys.readouterr().out)


def test_help_may_come_before_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "topic", "create"]) == FINE
    assert "Usage: tidemill topic create" in plain(capsys.readouterr().out)
    assert main(["help", "nothing"]) == FINE
    assert "Start here:" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("consume",), ("topic", "create"), ("cluster", "up")])
def test_a_narrow_terminal_cuts_no_flag(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*words, "--help"]) == FINE
    flags = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    monkeypatch.setenv("COLUMNS", "60")
    assert main([*words, "--help"]) == FINE
    shown = capsys.readouterr().out
    assert flags <= set(re.findall(r"--[a-z-]+", shown))
    assert max(map(len, shown.splitlines())) <= 60


def test_an_unknown_command_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics"]) == WRONG_USE
    assert capsys.readouterr().err == "error: there is no command 'topics'; did you mean topic? see tidemill --help\n"


@pytest.mark.usefixtures("_sample")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["works", "7"], FINE, ""),
        (
            ["works", "x"],
            WRONG_USE,
            "error: Invalid value for 'number': 'x' is not a whole number; see tidemill sample",
        ),
        (["works"], WRONG_USE, "error: Missing argument"),
        (["work"], WRONG_USE, "error: No such command"),
        (["fails", "failed"], FAILED, "error: it did not work; try again\n"),
        (["fails", "wrong"], WRONG_USE, "error: not like this\n"),
        (["fails", "interrupted"], INTERRUPTED, ""),
        (["fails", "abort"], FAILED, "error: stopped"),
        (["fails", "exit"], 3, ""),
        (["fails", "missing"], FAILED, "error: No such file or directory: here.txt\n"),
        ([], WRONG_USE, ""),
    ],
)
def test_failures_are_one_line_with_their_code(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sample", *words]) == code
    errors = capsys.readouterr().err
    assert errors.lower().startswith(said.lower())  # some versions of typer write names of arguments in capitals
    assert errors.count("\n") == bool(said)


@pytest.mark.usefixtures("_sample")
def test_a_bug_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        main(["sample", "fails", "bug"])


def test_serve_has_a_flag_for_every_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    main(["serve", "--help"])
    shown = plain(capsys.readouterr().out)
    for row in ROWS:
        assert f"--{row.name} " in shown
        assert row.variable in shown
    assert command_line.PROGRAM in shown
