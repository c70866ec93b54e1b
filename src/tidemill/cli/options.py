"""Options that commands of every kind share."""

from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.errors import WrongUse
from tidemill.model.locations import UnsupportedLocation, local_path

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def local_folder(text: str | Path) -> Path:
    """Parse an option or argument that names a local file or directory."""
    try:
        return Path(local_path(str(text)))
    except UnsupportedLocation as error:
        raise WrongUse(str(error)) from None
