"""Deletes the folder of a log so that a crash never leaves something that looks like a log."""

from contextlib import suppress

from tidemill.streams.interface import Disk

DELETED = ".deleted"


def delete_folder(disk: Disk, folder: str) -> None:
    """Delete a log permanently."""
    doomed = folder + DELETED
    parent = folder.rpartition("/")[0]
    empty_folder(disk, doomed)
    disk.rename(folder, doomed)
    disk.fsync_dir(parent)
    empty_folder(disk, doomed)
    if not disk.list(parent):
        with suppress(OSError):  # another partition of the topic may be created concurrently
            disk.remove_dir(parent)


def empty_folder(disk: Disk, folder: str) -> None:
    """Delete a folder of files, if it exists."""
    try:
        for name in disk.list(folder):
            disk.remove(f"{folder}/{name}")
        disk.remove_dir(folder)
    except FileNotFoundError:
        return
