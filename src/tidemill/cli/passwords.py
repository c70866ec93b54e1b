"""Where the password of a user comes from: the terminal, a file, the command line, or it is generated."""

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from tidemill.cli.errors import WrongUse
from tidemill.cli.output import remark
from tidemill.model.errors import InvalidConfig

GENERATED_BYTES = 24
VISIBLE = (
    "warning: other users of this machine can see a password on the command line; leave out --password to be asked, "
    "or use --password-file or --generate"
)

Password = Annotated[
    str | None,
    typer.Option(help="The password. Other users of this machine can see it: prefer --password-file, or to be asked."),
]
PasswordFile = Annotated[
    str | None, typer.Option("--password-file", help="File with the password. Its line end is no part of it.")
]
Generate = Annotated[bool, typer.Option("--generate", help="Generate a password and print it once.")]


class ChosenPassword(NamedTuple):
    """A password, and whether it was generated, so that the user must be shown it."""

    text: str
    is_generated: bool = False

    def __repr__(self) -> str:
        return "ChosenPassword(...)"


def choose_password(name: str, password: str | None, file: str | None, *, generate: bool) -> ChosenPassword:
    """The password that the options give. Without an option, ask for it twice on the terminal."""
    if sum([password is not None, file is not None, generate]) > 1:
        raise WrongUse("give only one of --password, --password-file and --generate")
    if generate:
        from secrets import token_urlsafe

        return ChosenPassword(token_urlsafe(GENERATED_BYTES), is_generated=True)
    if password is not None:
        remark(VISIBLE)
        return _checked(password)
    return _checked(_from_file(file) if file is not None else _asked(name))


def _from_file(file: str) -> str:
    from tidemill.settings import read_secret

    try:
        return read_secret(Path(file).expanduser(), "--password-file")
    except InvalidConfig as error:
        raise WrongUse(str(error)) from None


def _asked(name: str) -> str:
    if not sys.stdin.isatty():
        raise WrongUse("cannot ask for a password without a terminal; give --password-file FILE or --generate")
    first = getpass(f"Password of {name}: ", sys.stderr)
    if first != getpass("The same again: ", sys.stderr):
        raise WrongUse("the two passwords differ; nothing was changed")
    return first


def _checked(password: str) -> ChosenPassword:
    if not password or "\0" in password:
        raise WrongUse("the password is empty or has a NUL character; choose another one")
    return ChosenPassword(password)
