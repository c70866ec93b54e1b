"""`tidemill repair`: repairs the data directory of a stopped broker after damage that prevents its start."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.errors import WrongUse
from tidemill.cli.options import Json
from tidemill.cli.output import remark, show
from tidemill.model.errors import InvalidConfig
from tidemill.settings import load


def repair(
    data_dir: Annotated[str | None, typer.Option(help="Data directory of the stopped broker.")] = None,
    config: Annotated[str | None, typer.Option(help="Settings file that names the data directory.")] = None,
    node_id: Annotated[int, typer.Option(help="Id of the broker, if node.json is lost.", min=0)] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Make the changes. Without it they are only shown.")] = False,
    as_json: Json = False,
) -> None:
    """Show the damage in a data directory and the repairs. With --yes, make the repairs.

    Damaged files are kept under another name. Stop the broker first.

    Example: tidemill repair --data-dir /var/lib/tidemill
    """
    from tidemill.app.lock import DataDirLock
    from tidemill.app.repair import plan

    try:
        folder = load({"data-dir": data_dir}, os.environ, config=config, folder=Path()).data_dir
    except InvalidConfig as error:
        raise WrongUse(str(error)) from None
    if not folder.is_dir():
        raise WrongUse(f"there is no data directory {folder}; name it with --data-dir")
    lock = DataDirLock(folder)
    try:
        steps = plan(folder, node_id)
        if yes:
            for step in steps:
                step.act()
    finally:
        lock.release()
    rows = [{"what": step.what, "found": step.found, "action": step.action, "done": yes} for step in steps]
    show(rows, ("what", "found", "action"), as_json=as_json, empty=f"{folder} is in order")
    if steps and not as_json:
        remark("done; start the broker" if yes else "nothing was changed; to make these changes add --yes")
