"""Writes files that are complete or absent after a crash: written under another name, flushed, then renamed.

All functions here block. A failed write leaves the old file, and nothing else.
"""

import os
from contextlib import suppress
from pathlib import Path

FRESH = ".new"


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file, durably when this returns. Readers and crashes find the old one or the new one."""
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
    """Move a file into place. Succeeds when an earlier attempt already did it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.exists() or not target.exists():
        source.replace(target)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
