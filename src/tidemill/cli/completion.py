"""Shell completion: run `tidemill --install-completion` once, then TAB completes commands and flags.

A shell requests completions by running `tidemill` with `_TIDEMILL_COMPLETE` in the environment. Only then, and for the
reference page, the tree of all commands is loaded. An ordinary call loads one command.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from typing import Any

import typer

PROGRAM = "tidemill"


def load(target: str) -> Any:
    """Import `module:attribute`: a typer app, or a plain function with typer annotations."""
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    callbacks = [each.callback for each in found.registered_commands] if isinstance(found, typer.Typer) else [found]
    for callback in callbacks:
        callback.__doc__ = _paragraphs(callback.__doc__ or "")
    return found


def _paragraphs(text: str) -> str:
    """Join each paragraph into one line, because typer keeps the line breaks of the source on any terminal."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in cleandoc(text).split("\n\n"))


def tree(targets: Mapping[str, str]) -> Any:
    """One command with all of these as subcommands."""
    root = typer.Typer(name=PROGRAM)
    root.callback()(_root)
    for name, target in targets.items():
        found = load(target)
        if isinstance(found, typer.Typer):
            root.add_typer(found, name=name)
        else:
            root.command(name)(found)
    return typer.main.get_command(root)


def answer(targets: Mapping[str, str], words: Sequence[str]) -> int:
    """Answer the shell's request, or install the completion."""
    try:
        tree(targets)(args=list(words), prog_name=PROGRAM)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    return 0


def _root() -> None:
    """Streams for every Kafka client, timelines, and pipelines on Spark, in one package."""
