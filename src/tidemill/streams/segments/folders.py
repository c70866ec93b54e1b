"""Removing the folder of a log, so that a crash on the way leaves nothing that looks like a log."""

from contextlib import suppress

from tidemill.streams.interface import Disk

DELETED = ".deleted"


def delete_folder(disk: Disk, folder: str) -> None:
    """Remove a log for good."""
    doomed = folder + DELETED
    parent = folder.rpartition("/")[0]
    empty_folder(disk, doomed)
    disk.rename(folder, doomed)
    disk.fsync_dir(parent)
    empty_folder(disk, doomed)
    if not disk.list(parent):
        with suppress(OSError):  # another partition of the topic may be on its way in
            disk.remove_dir(parent)


def empty_folder(disk: Disk, folder: str) -> None:
    """Remove a folder of files, if it is there."""
    try:
        for name in disk.list(folder):
            disk.remove(f"{folder}/{name}")
        disk.remove_dir(folder)
    except FileNotFoundError:
        return
