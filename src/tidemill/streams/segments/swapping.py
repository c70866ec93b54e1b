"""Replaces several segments with one rewritten file, so that a crash leaves either the old ones or the new one.

Compaction writes a `.tmp` file next to the segments and flushes it. The rename to `FIRST-LAST.swap` is the commit
point. From then on the segments from FIRST to LAST are obsolete, whatever files exist. They are deleted with all
indexes, and at the end the file gets the name of the first segment. Each step is flushed before the next one, because
not every file system keeps the order of two renames. A start that finds a `.swap` file continues from there. It deletes
`.tmp` files.

All functions here block; the log runs them on a thread.
"""

from tidemill.streams.interface import Disk
from tidemill.streams.segments.segment import INDEX, LOG, TIMEINDEX, segment_name

SWAP = ".swap"
NAME_DIGITS = 20


def put_in_place(disk: Disk, folder: str, temporary: str, first_base: int, last_base: int) -> None:
    """Replace the segments from `first_base` to `last_base` with the flushed file `temporary`."""
    swap = f"{segment_name(first_base)}-{segment_name(last_base)}{SWAP}"
    disk.rename(temporary, f"{folder}/{swap}")
    disk.fsync_dir(folder)
    _finish(disk, folder, swap)


def finish_swaps(disk: Disk, folder: str) -> None:
    """Finish replacements that a crash interrupted."""
    for name in disk.list(folder):
        if name.endswith(SWAP):
            _finish(disk, folder, name)


def _finish(disk: Disk, folder: str, swap: str) -> None:
    first, _, last = swap.removesuffix(SWAP).partition("-")
    for name in disk.list(folder):
        base, ending = name[:NAME_DIGITS], name[NAME_DIGITS:]
        obsolete = base.isdigit() and first <= base <= last and ending in {LOG, INDEX, TIMEINDEX}
        if obsolete and name != first + LOG:
            disk.remove(f"{folder}/{name}")
    disk.fsync_dir(folder)
    disk.rename(f"{folder}/{swap}", f"{folder}/{first}{LOG}")
    disk.fsync_dir(folder)
