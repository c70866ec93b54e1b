"""Files that are whole after a crash, or not there."""

import os
from pathlib import Path

ASIDE = ".new"


def write_whole(path: Path, text: str) -> None:
    """Write a file so that readers and crashes find the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ASIDE)
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
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
