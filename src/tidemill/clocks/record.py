"""Stores the last trusted wall time in the data directory, so that the next start can compare.

The record is replaced as a whole (new file, flush, rename), so that after a crash either the old or the new one exists.
An unreadable record is no evidence. Then the newest file of the last run is used instead, because a client cannot
choose the time of a file. The record must be read before this start changes one of these files.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from tidemill.clocks.core.doubt import LastTrusted
from tidemill.durable_files import replace_file

FILE = "clock.json"
FORMAT = 1
NS_PER_MS = 1_000_000

log = structlog.get_logger("tidemill.clock")


class ClockRecord:
    """The record file, or the times of other files where it is missing. All methods block.

    `written` has the patterns of the files in the folder that a broker writes while it runs or when it stops.
    """

    def __init__(self, folder: Path, written: Sequence[str]) -> None:
        self._path = folder / FILE
        self._written = written

    def read(self) -> LastTrusted | None:
        """Return the record of the last run, or None in a new data directory."""
        try:
            read = json.loads(self._path.read_text("utf-8"))
            return LastTrusted(
                int(read["wall_ms"]),
                str(read["boot_id"]),
                int(read["boot_ms"]),
                int(read["doubted_ms"]),
                bool(read["is_earliest"]),
                int(read.get("stood_ms", 0)),
                int(read.get("offset_ms", 0)),
            )
        except FileNotFoundError:
            return self._from_files()
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("clock_record_unreadable", path=str(self._path), error=str(error))
            return self._from_files()

    def write(self, seen: LastTrusted) -> None:
        """Replace the record. On a full disk the old record stays, which is still evidence."""
        try:
            replace_file(self._path, json.dumps({"format": FORMAT, **seen._asdict()}).encode() + b"\n")
        except OSError as error:
            log.warning("clock_record_write_failed", path=str(self._path), error=str(error))

    def _from_files(self) -> LastTrusted | None:
        """Derive the record from the newest file, for a directory of an earlier version."""
        newest_ms = max(self._written_ms(), default=None)
        return None if newest_ms is None else LastTrusted(newest_ms, "", 0)

    def _written_ms(self) -> Iterator[int]:
        for path in (path for pattern in self._written for path in self._path.parent.glob(pattern)):
            with suppress(OSError):
                yield path.stat().st_mtime_ns // NS_PER_MS
