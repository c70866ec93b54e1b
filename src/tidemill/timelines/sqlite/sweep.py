"""Removes the rows of completed and cancelled messages: late, many at once, and in the order of the file.

Messages are completed in the order of their due times, but their rows are in the order of scheduling. Removed one by
one, each would change two pages of the file (the row's and its id's). So the number of a completed message is only
recorded. When there are enough, they are sorted and removed, a few with each commit: the more there are, the more of
them share a page. The number of remaining rows is bounded by the size of the file.

After a crash a sweep starts again; a row that is already removed does no harm.
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
"""A sweep starts at this many completed messages per page of the file, at least GONE_MIN and at most GONE_MAX."""
SORT_CACHE_KIB = 8 * 1024
COMPRESS_LEVEL = 1
STEP_ROWS = 500
FORGET_ROWS = 5_000
PACE = 2
"""The least number of rows that are removed per newly completed message, so that a sweep comes to an end."""

_ENDS = "SELECT (SELECT min(place) FROM gone), (SELECT max(place) FROM gone)"
_SORTED = f"""
SELECT json_group_array(seq)
FROM (SELECT seq, (row_number() OVER (ORDER BY seq) - 1) / {STEP_ROWS} AS step FROM gone WHERE place <= ?)
GROUP BY step ORDER BY step
"""  # noqa: S608 (own text; values are bound)
_REMOVE = "DELETE FROM messages WHERE seq IN (SELECT value FROM json_each(?))"
_FORGET = "DELETE FROM gone WHERE place <= ?"


class Sweeper:
    """Decides when to sweep, and runs its steps in the writer's transactions."""

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
        """Start a sweep when enough messages are completed."""
        if self._listed or (self._thread and self._thread.is_alive()):
            return
        with suppress(sqlite3.Error):  # a damaged file also fails the operations, which report it
            first, last = writer.execute(_ENDS).fetchone()
            (pages,) = writer.execute("PRAGMA page_count").fetchone()
            if first is not None and last - first >= min(GONE_MAX, max(GONE_MIN, GONE_PER_PAGE * pages)):
                self._thread = threading.Thread(target=self._list, args=(last,), name="timelines-sweep", daemon=True)
                self._thread.start()

    @property
    def has_work(self) -> bool:
        """Whether the next transaction should run a step."""
        return self._listed > 0

    def step(self, connection: sqlite3.Connection) -> None:
        """Remove some rows; after the last of them, remove their numbers. Nothing counts before `stepped`."""
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
        """Record that the transaction of the last step is durable."""
        for _ in range(self._taken):
            self._steps.popleft()

    def close(self) -> None:
        """Wait for the running sort."""
        if self._thread is not None:
            self._thread.join()

    def _list(self, last: int) -> None:
        connection = connect(self._path, SORT_CACHE_KIB)
        # A failure loses nothing: the next check starts again.
        try:
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA temp_store = FILE")
                for (step,) in connection.execute(_SORTED, (last,)):
                    self._steps.append(zlib.compress(step.encode(), COMPRESS_LEVEL))
                self._newest = last
                self._listed = last
        finally:
            connection.close()
