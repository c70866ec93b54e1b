"""The open files of all logs: few of many.

A thousand partitions with many segments each have more files than a process may open. A file is opened when it is
used; beyond the limit the one that was not used for longest is closed. A file stays open while a thread may still use
it (`uses`). One with bytes that were not flushed is closed only when there is no other: the system reports a failed
write-back first of all to those who had the file open, and to who opens it next only while it remembers.
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
    """Files by path, the last used at the end."""

    def __init__(self, disk: Disk, limit: int = OPEN_FILES_MAX) -> None:
        self.disk = disk
        self._limit = limit
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str, *, create: bool = False) -> OpenFile:
        """The file, opened now if it was not."""
        found = self._files.get(path)
        if found is not None:
            self._files.move_to_end(path)
            return found
        if len(self._files) >= self._limit:
            self._close_idle()
        opened = self._files[path] = OpenFile(path, self.disk.open(path, create=create))
        return opened

    def forget(self, path: str) -> None:
        """Close the file; whoever has it in use closes it when done."""
        found = self._files.pop(path, None)
        if found is not None:
            found.dirty = False
            if found.uses == 0:
                self.disk.close(found.file)

    def release(self, opened: OpenFile) -> None:
        """End a use; the last user of a forgotten file closes it."""
        opened.uses -= 1
        if opened.uses == 0 and self._files.get(opened.path) is not opened:
            self.disk.close(opened.file)

    def close(self) -> None:
        """Close all."""
        for path in list(self._files):
            self.forget(path)

    def _close_idle(self) -> None:
        idle = [opened for opened in self._files.values() if opened.uses == 0]
        chosen = next((opened for opened in idle if not opened.dirty), idle[0] if idle else None)
        if chosen is not None:
            self.forget(chosen.path)
