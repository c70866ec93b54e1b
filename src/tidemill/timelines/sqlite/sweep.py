"""Removes the rows of messages that are gone: late, many at once, and in the order in which they are in the file.

Messages are completed in the order of their due times, but their rows lie in the order of scheduling. Removed one by
one, each would change two pages of the file (the row's and its id's) for itself. So a message that is gone is only
written down, and when enough of them are, they are sorted, and removed a few with each commit: the more there are, the
more of them share a page. What is left over is bounded by the size of the file.

A sweep begins anew after a crash; a row that was removed before is not missed.
"""

import sqlite3
import threading
import zlib
from collections import deque
from contextlib import suppress
from pathlib import Path

from tidemill.timelines.sqlite.schema import connect

GONE_MIN = 20_000
GONE_MAX = 4_000_000
GONE_PER_PAGE = 5
"""A sweep begins when so many messages are gone for each page of the file, and at least GONE_MIN, at most GONE_MAX."""
SORT_CACHE_KIB = 8 * 1024
COMPRESS_LEVEL = 1
STEP_ROWS = 500
FORGET_ROWS = 5_000
PACE = 2
"""So many rows are removed, at least, for each message that goes in the meantime: a sweep comes to an end."""

_ENDS = "SELECT (SELECT min(place) FROM gone), (SELECT max(place) FROM gone)"
_SORTED = f"""
SELECT json_group_array(seq)
FROM (SELECT seq, (row_number() OVER (ORDER BY seq) - 1) / {STEP_ROWS} AS step FROM gone WHERE place <= ?)
GROUP BY step ORDER BY step
"""  # noqa: S608 (own text; values are bound)
_REMOVE = "DELETE FROM messages WHERE seq IN (SELECT value FROM json_each(?))"
_FORGET = "DELETE FROM gone WHERE place <= ?"


class Sweeper:
    """Finds out when to sweep, and takes its steps in the writer's transactions."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: threading.Thread | None = None
        self._steps: deque[bytes] = deque()
        """Sorted numbers, compressed to a quarter: there may be millions."""
        self._listed = 0
        """The last place in `gone` that is being swept; 0 between sweeps."""
        self._newest = 0
        self._taken = 0

    def look(self, writer: sqlite3.Connection) -> None:
        """Begin a sweep when enough messages are gone."""
        if self._listed or (self._thread and self._thread.is_alive()):
            return
        with suppress(sqlite3.Error):  # a file that is damaged fails the operations, which can say so
            first, last = writer.execute(_ENDS).fetchone()
            (pages,) = writer.execute("PRAGMA page_count").fetchone()
            if first is not None and last - first >= min(GONE_MAX, max(GONE_MIN, GONE_PER_PAGE * pages)):
                self._thread = threading.Thread(target=self._list, args=(last,), name="timelines-sweep", daemon=True)
                self._thread.start()

    @property
    def has_work(self) -> bool:
        """Whether the next transaction should take a step."""
        return self._listed > 0

    def step(self, connection: sqlite3.Connection) -> None:
        """Remove some rows; after the last of them, forget which they were. Nothing counts before `stepped`."""
        first, last = connection.execute(_ENDS).fetchone()
        self._taken = 0
        if self._steps:
            self._taken = min(len(self._steps), 1 + PACE * max(0, last - self._newest) // STEP_ROWS)
            for index in range(self._taken):
                connection.execute(_REMOVE, (zlib.decompress(self._steps[index]).decode(),))
        elif first is not None and first <= self._listed:
            connection.execute(_FORGET, (min(self._listed, first + FORGET_ROWS - 1),))
        else:
            self._listed = 0
        self._newest = last or 0

    def stepped(self) -> None:
        """The transaction with the last step is durable."""
        for _ in range(self._taken):
            self._steps.popleft()

    def close(self) -> None:
        """Wait for the sorting under way."""
        if self._thread is not None:
            self._thread.join()

    def _list(self, last: int) -> None:
        connection = connect(self._path, SORT_CACHE_KIB)
        # A failure loses nothing: the next look begins again.
        try:
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA temp_store = FILE")
                for (step,) in connection.execute(_SORTED, (last,)):
                    self._steps.append(zlib.compress(step.encode(), COMPRESS_LEVEL))
                self._newest = last
                self._listed = last
        finally:
            connection.close()
