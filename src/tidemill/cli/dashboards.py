"""`tidemill dashboards`: dashboards for Grafana, and rules and a sample configuration for Prometheus, as files."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json, local_folder
from tidemill.cli.output import remark, say, show, show_json

app = typer.Typer(help="Write dashboards for Grafana and alert rules for Prometheus.", no_args_is_help=True)

SCRAPE_FILE = "prometheus.yml"
DEFAULT_TARGET = "127.0.0.1:8080"
TARGETS_MAX = 1_000


@app.command("list")
def list_boards(as_json: Json = False) -> None:
    """List the dashboards that `write` writes.

    Example: tidemill dashboards list
    """
    from tidemill.cli.monitoring.boards import BOARDS

    rows = [
        {
            "name": board.name,
            "title": board.title,
            "panels": sum(len(section.panels) for section in board.sections),
            "description": board.description,
        }
        for board in BOARDS
    ]
    show(rows, ("name", "title", "panels", "description"), as_json=as_json)


@app.command()
def write(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Directory to write to; it is made if missing.")],
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="HOST:PORT",
            help="HTTP address of a broker, for prometheus.yml. Repeatable.",
            show_default=DEFAULT_TARGET,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that differ.")] = False,
    as_json: Json = False,
) -> None:
    """Write the dashboards as JSON for Grafana, and alert rules and a sample configuration for Prometheus as YAML.

    Example: tidemill dashboards write monitoring --target broker1:8080 --target broker2:8080
    """
    directory = local_folder(folder)
    found = files(_targets(target or [DEFAULT_TARGET]))
    known = {name: _content(directory / name) for name in found}
    if not force:
        _refuse_changed(directory, found, known)
    _make(directory)
    rows = [{"file": str(directory / name), "written": known[name] != text} for name, text in found.items()]
    for name, text in found.items():
        if known[name] != text:
            _write(directory / name, text)
    if as_json:
        show_json(rows)
        return
    for row in rows:
        say(f"{row['file']}{'' if row['written'] else '  unchanged'}")
    flags = f"--config.file={directory / SCRAPE_FILE} --storage.tsdb.path={directory / 'data'}"
    remark(f"import the JSON files into Grafana; start Prometheus with {flags}")


def files(targets: list[str]) -> dict[str, str]:
    """The content of every file by its name."""
    from tidemill.cli.monitoring.boards import BOARDS
    from tidemill.cli.monitoring.grafana import dashboard
    from tidemill.cli.monitoring.prometheus_files import RULES_FILE, rules_text, scrape_text
    from tidemill.cli.monitoring.rules import ALERTS, RECORDINGS

    boards = {board.file_name: json.dumps(dashboard(board), indent=2, ensure_ascii=False) + "\n" for board in BOARDS}
    return {**boards, RULES_FILE: rules_text(RECORDINGS, ALERTS), SCRAPE_FILE: scrape_text(targets)}


def _targets(texts: list[str]) -> list[str]:
    from tidemill.model.addresses import parse_address
    from tidemill.model.errors import InvalidConfig

    if len(texts) > TARGETS_MAX:
        raise WrongUse(f"{len(texts)} targets are too many; give at most {TARGETS_MAX}")
    try:
        addresses = [parse_address(text) for text in texts]
    except InvalidConfig as error:
        raise WrongUse(f"--target: {error}") from None
    if not all(address.port for address in addresses):
        raise WrongUse("--target: port 0 cannot be scraped; give the port of the broker's HTTP server")
    return list(map(str, addresses))


def _content(path: Path) -> str | None:
    """The text of a file; None if there is none, and bytes that are not text as another text."""
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}; choose another directory") from None


def _refuse_changed(directory: Path, found: Mapping[str, str], known: Mapping[str, str | None]) -> None:
    changed = [name for name, text in known.items() if text is not None and text != found[name]]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise CommandFailed(
            f"{directory / changed[0]}{more} has other content; nothing was written; "
            "add --force to replace it, or choose another directory"
        )


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandFailed(f"{directory} cannot be made: {error.strerror}; choose another directory") from None


def _write(path: Path, text: str) -> None:
    """Replace a file at once, so that Prometheus and Grafana never read half of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise CommandFailed(f"{path} cannot be written: {error.strerror}; choose another directory") from None
