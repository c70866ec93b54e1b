"""Files that are whole after a crash, or not there: written under another name, flushed, then renamed.

Everything here blocks. A file that could not be written leaves the old one, and nothing else.
"""

import os
from contextlib import suppress
from pathlib import Path

FRESH = ".new"


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file; durable when this returns. Readers and crashes find the old one or the new one."""
    fresh = path.with_name(path.name + FRESH)
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
    sync(path.parent)


def move(source: Path, target: Path) -> None:
    """Move a file into its place; fine when an earlier attempt has done it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.exists() or not target.exists():
        source.replace(target)


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
