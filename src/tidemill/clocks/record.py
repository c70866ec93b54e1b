"""The clock's record in the data directory: the last wall time that was trusted, so that the next start can compare.

It is replaced as a whole (a new file, flushed, then renamed): after a crash the old or the new one is there. A record
that cannot be read is no evidence, and the newest file of a log takes its place: brokers write files, clients do not
choose when.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import structlog

from tidemill.clocks.core.doubt import Seen

FILE = "clock.json"
FORMAT = 1
NS_PER_MS = 1_000_000

log = structlog.get_logger("tidemill.clock")


class ClockRecord:
    """The file, and what the log files say where there is none. Everything here blocks."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self._path = folder / FILE
        self._logs = logs

    def read(self) -> Seen | None:
        """What the last run left; None in a new data directory."""
        try:
            read = json.loads(self._path.read_text("utf-8"))
            return Seen(
                int(read["wall_ms"]),
                str(read["boot_id"]),
                int(read["boot_ms"]),
                int(read["doubted_ms"]),
                bool(read["is_earliest"]),
            )
        except FileNotFoundError:
            return self._from_logs()
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("clock record unreadable", path=str(self._path), error=str(error))
            return self._from_logs()

    def write(self, seen: Seen) -> None:
        """Replace the record; a disk without room keeps the old one, which is evidence still."""
        fresh = self._path.with_suffix(".new")
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(json.dumps({"format": FORMAT, **seen._asdict()}) + "\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(self._path)
            handle = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            log.warning("clock record not written", path=str(self._path), error=str(error))

    def _from_logs(self) -> Seen | None:
        """The newest file of a log, for a directory that an earlier version wrote."""
        newest_ms = max(self._written_ms(), default=None)
        return None if newest_ms is None else Seen(newest_ms, "", 0)

    def _written_ms(self) -> Iterator[int]:
        for path in self._logs.glob("*/*/*.log"):
            with suppress(OSError):
                yield path.stat().st_mtime_ns // NS_PER_MS
