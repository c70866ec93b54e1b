"""Limits the open files of all logs.

A thousand partitions with many segments have more files than a process may open. A file is opened on use. At the limit,
the least recently used file is closed. A file stays open while a thread may still use it (`uses`).

A file with unflushed bytes is closed only when there is no other. The kernel reports a failed write-back first to
descriptors that were open. It reports the failure to a later open only while it remembers it.
"""

from collections import OrderedDict

from tidemill.streams.interface import Disk

OPEN_FILES_MAX = 400


class OpenFile:
    """One open file."""

    __slots__ = ("dirty", "file", "path", "uses")

    def __init__(self, path: str, file: int) -> None:
        self.path = path
        self.file = file
        self.uses = 0
        self.dirty = False


class OpenFiles:
    """Open files by path, least recently used first."""

    def __init__(self, disk: Disk, limit: int = OPEN_FILES_MAX) -> None:
        self.disk = disk
        self._limit = limit
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, *, create: bool = False) -> OpenFile:
        """Return the file, and open it if needed."""
        found = self._files.get(path)
        if found is not None:
            self._files.move_to_end(path)
            return found
        if len(self._files) >= self._limit:
            self._close_idle()
        opened = self._files[path] = OpenFile(path, self.disk.open(path, create=create))
        return opened

    def forget(self, path: str) -> None:
        """Close the file. If it is in use, its last user closes it."""
        found = self._files.pop(path, None)
        if found is not None:
            found.dirty = False
            if found.uses == 0:
                self.disk.close(found.file)

    def release(self, opened: OpenFile) -> None:
        """End a use. The last user of a forgotten file closes it."""
        opened.uses -= 1
        if opened.uses == 0 and self._files.get(opened.path) is not opened:
            self.disk.close(opened.file)

    def close(self) -> None:
        """Close all files."""
        for path in list(self._files):
            self.forget(path)

    def _close_idle(self) -> None:
        idle = [opened for opened in self._files.values() if opened.uses == 0]
        chosen = next((opened for opened in idle if not opened.dirty), idle[0] if idle else None)
        if chosen is not None:
            self.forget(chosen.path)
