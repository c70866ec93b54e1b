"""Output of commands: tables or JSON on standard output, remarks on standard error."""

import json
import shutil
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tidemill.cli.errors import WrongUse

Row = Mapping[str, Any]
FOLDED_CHARS = 16
"""A longer cell may wrap to a second line."""
GAP_CHARS = 3
Advance = Callable[[int], None]
"""Advances a progress bar by this many steps."""


def say(text: str) -> None:
    """Print one line of the result."""
    sys.stdout.write(text + "\n")


def remark(text: str) -> None:
    """Print one line for the user on standard error, so that a pipe does not read it."""
    sys.stderr.write(text + "\n")


def hint(text: str) -> None:
    """Print one line if standard error is a terminal."""
    if sys.stderr.isatty():
        remark(text)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before a destructive action. Without a terminal, `--yes` is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise WrongUse("cannot ask for confirmation without a terminal; add --yes to confirm")
    import typer

    typer.confirm(question, abort=True)


def show_json(value: Any) -> None:
    """Print the whole result as one JSON document."""
    say(json.dumps(value, ensure_ascii=not writes_unicode(), default=str))


def show_document(document: Any) -> None:
    """Print a document of the JSON API, which has the same shape there."""
    import msgspec

    show_json(msgspec.to_builtins(document))


def writes_unicode() -> bool:
    """Whether standard output can write any character."""
    return (sys.stdout.encoding or "").lower() == "utf-8"


def text_fields(**values: bytes | None) -> dict[str, str | None]:
    """Bytes as text for JSON. Bytes that are not text are in `NAME_base64`."""
    fields: dict[str, str | None] = {}
    for name, value in values.items():
        fields[name] = None if value is None else value.decode(errors="replace")
        if value is not None and value != (fields[name] or "").encode():
            fields[f"{name}_base64"] = b64encode(value).decode()
    return fields


def show(rows: Sequence[Row], columns: Sequence[str], *, as_json: bool, empty: str = "nothing to show") -> None:
    """Print rows as JSON, or as a table with these columns."""
    if as_json:
        show_json([dict(row) for row in rows])
    elif not rows:
        remark(empty)
    elif sys.stdout.isatty() and not _too_wide(rows, columns):
        _show_rich(rows, columns)
    elif sys.stdout.isatty():
        _show_one_by_one(rows, columns)
    else:
        _show_plain(rows, columns)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _show_plain(rows: Sequence[Row], columns: Sequence[str]) -> None:
    cells = [[column.upper() for column in columns]] + [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _too_wide(rows: Sequence[Row], columns: Sequence[str]) -> bool:
    """Whether a table would have to break words on this terminal."""
    width = 0
    for column in columns:
        longest = max(len(_cell(row.get(column))) for row in rows)
        width += max(len(column), min(longest, FOLDED_CHARS)) + GAP_CHARS
    return width > shutil.get_terminal_size().columns


def _show_one_by_one(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Print each row as several lines, for a narrow terminal."""
    width = max(map(len, columns))
    say(
        "\n\n".join("\n".join(f"{column.ljust(width)}  {_cell(row.get(column))}" for column in columns) for row in rows)
    )


def _show_rich(rows: Sequence[Row], columns: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    Console().print(table)


@contextmanager
def progress(label: str, total: int | None, *, in_bytes: bool = False) -> Iterator[Advance]:
    """A progress bar on standard error during long work. Silent when it is not a terminal."""
    if not sys.stderr.isatty():
        yield _no_progress
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TransferSpeedColumn,
    )

    done = (DownloadColumn(), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(),)
    columns = (TextColumn("{task.description}"), BarColumn(), *done, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        yield lambda steps: bar.advance(task, steps)


def _no_progress(steps: int) -> None:
    del steps
