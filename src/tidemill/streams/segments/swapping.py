"""Putting a rewritten file in the place of several segments, so that a crash leaves the old ones or the new one.

Compaction writes `.tmp` beside the segments and flushes it. Renamed to `FIRST-LAST.swap` it counts: from then on the
segments from FIRST to LAST are dead, whatever files there are. They are removed, with all indexes, and last of all the
file gets the name of the first segment. Each step is made safe before the next one, since the order of two changes of
names is not kept by every file system. A start that finds a `.swap` goes on from there; `.tmp` it removes.

Everything here blocks; the log runs it aside.
"""

from tidemill.streams.interface import Disk
from tidemill.streams.segments.segment import INDEX, LOG, TIMEINDEX, segment_name

SWAP = ".swap"
NAME_DIGITS = 20


def put_in_place(disk: Disk, folder: str, temporary: str, first_base: int, last_base: int) -> None:
    """Let the flushed file `temporary` take the place of the segments from `first_base` to `last_base`."""
    swap = f"{segment_name(first_base)}-{segment_name(last_base)}{SWAP}"
    disk.rename(temporary, f"{folder}/{swap}")
    disk.fsync_dir(folder)
    _finish(disk, folder, swap)


def finish_swaps(disk: Disk, folder: str) -> None:
    """Finish what a crash interrupted."""
    for name in disk.list(folder):
        if name.endswith(SWAP):
            _finish(disk, folder, name)


def _finish(disk: Disk, folder: str, swap: str) -> None:
    first, _, last = swap.removesuffix(SWAP).partition("-")
    for name in disk.list(folder):
        base, ending = name[:NAME_DIGITS], name[NAME_DIGITS:]
        dead = base.isdigit() and first <= base <= last and ending in {LOG, INDEX, TIMEINDEX}
        if dead and name != first + LOG:
            disk.remove(f"{folder}/{name}")
    disk.fsync_dir(folder)
    disk.rename(f"{folder}/{swap}", f"{folder}/{first}{LOG}")
    disk.fsync_dir(folder)
