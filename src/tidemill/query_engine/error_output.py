"""Reads what a query process writes to standard error while it starts, and keeps the end of it.

The pipe must be read continuously, because a process blocks on a full one. It ends when the process is ready or dead.
"""

import threading
from typing import IO

KEPT_BYTES_MAX = 4096
"""The end of a traceback names the error."""
READ_BYTES = 65_536
END_S = 5.0
"""How long to wait for the end of a dead process's pipe, because another process may still hold it."""


class ErrorOutput:
    """The standard error of one process."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._kept = b""
        self._reading = threading.Thread(target=self._read, args=(pipe,), name="sql-stderr", daemon=True)
        self._reading.start()

    def text(self) -> str:
        """Return the last KEPT_BYTES_MAX bytes. Blocks until the pipe ends or END_S have passed."""
        self._reading.join(END_S)
        return self._kept.decode(errors="replace").strip()

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            while part := pipe.read(READ_BYTES):
                self._kept = (self._kept + part)[-KEPT_BYTES_MAX:]
