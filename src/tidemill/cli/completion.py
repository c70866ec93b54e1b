"""Shell completion: `tidemill --install-completion` once, then TAB knows commands and flags.

A shell asks by running `tidemill` with `_TIDEMILL_COMPLETE` in the environment. Only then, and for the reference page,
is the tree of all commands put together; an ordinary call loads one command.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import cleandoc
from typing import Any

import typer

PROGRAM = "tidemill"


def load(target: str) -> Any:
    """What `module:attribute` names: a typer app, or a plain function with typer annotations."""
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    callbacks = [each.callback for each in found.registered_commands] if isinstance(found, typer.Typer) else [found]
    for callback in callbacks:
        callback.__doc__ = _paragraphs(callback.__doc__ or "")
    return found


def _paragraphs(text: str) -> str:
    """The text with one line for each paragraph: typer breaks lines where the source does, on any terminal."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in cleandoc(text).split("\n\n"))


def tree(targets: Mapping[str, str]) -> Any:
    """One command that has all of these below it."""
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
    """Answer the shell, or install what makes it ask."""
    try:
        tree(targets)(args=list(words), prog_name=PROGRAM)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    return 0


def _root() -> None:
    """Streams for every Kafka client, timelines, and pipelines on Spark, in one package."""
