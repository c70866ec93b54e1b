"""Options that commands of every kind have."""

from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.errors import WrongUse
from tidemill.model.locations import UnsupportedLocation, local_path

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def local_folder(text: str | Path) -> Path:
    """How every option and argument that names a folder or file is parsed."""
    try:
        return Path(local_path(str(text)))
    except UnsupportedLocation as error:
        raise WrongUse(str(error)) from None
