"""Writes files that are complete or absent after a crash: written under another name, flushed, then renamed.

All functions here block. A failed write leaves the old file, and nothing else.
"""

import os
from contextlib import suppress
from pathlib import Path

FRESH = ".new"
PUBLIC_MODE, PRIVATE_MODE = 0o666, 0o600
"""The mode of a file before the umask. A private file holds credentials: only its owner may read it."""


def replace_file(path: Path, data: bytes, *, private: bool = False) -> None:
    """Replace a file, durably when this returns. Readers and crashes find the old one or the new one."""
    mode = PRIVATE_MODE if private else PUBLIC_MODE
    fresh = path.with_name(path.name + FRESH)
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
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
