"""Moves the places of new messages from `fresh` to `places`: late, many at once, and in the order of the timeline.

On a long timeline with scattered due times each new place belongs on another page. A page that is changed for one place
is read, written to the WAL and copied into the file for that place alone. So new places collect in blocks by number.
Each block is in the order of the timeline, and small enough that a batch of messages shares its pages. When there are
enough blocks they are merged into `places`, a few places with each commit: the more there are, the more of them share a
page. A message that is leased before that is never written to `places`.

A place is always in exactly one of the two tables. So a merge that was interrupted by a crash leaves a valid file, and
the next one starts with what is left.
"""

import sqlite3
from contextlib import suppress

from tidemill.timelines.sqlite.reads import fresh_blocks
from tidemill.timelines.sqlite.tables import BLOCK

FRESH_PER_PAGE = 2
BLOCKS_MAX = 48
"""A merge starts at this many new messages per page of the file, with at least one block and at most BLOCKS_MAX."""
STEP_PLACES = 500
PACE = 2
"""The least number of places that are moved per new message, so that a merge comes to an end."""

_NEWEST = "SELECT seq FROM sqlite_sequence WHERE name = 'messages'"
_BLOCK = "SELECT timeline, due_ms, seq FROM fresh WHERE block = ?"
_UP_TO = "block = ? AND (timeline, due_ms, seq) < (?, ?, ?)"
_MOVE = f"INSERT INTO places SELECT timeline, due_ms, seq FROM fresh WHERE {_UP_TO}"  # noqa: S608 (own text; values are bound)
_LEAVE = f"DELETE FROM fresh WHERE {_UP_TO}"  # noqa: S608 (own text; values are bound)
_BEHIND_ALL = (2**63 - 1, 0, 0)


class Merger:
    """Decides when to merge, and runs its steps in the writer's transactions."""

    def __init__(self) -> None:
        self._last: int | None = None
        """The last block that is being merged; None between merges."""
        self._newest = 0

    def look(self, writer: sqlite3.Connection) -> None:
        """Start a merge when there are enough blocks; the newest one is still written to."""
        if self._last is not None:
            return
        with suppress(sqlite3.Error):  # a damaged file also fails the operations, which report it
            blocks = fresh_blocks(writer)
            (pages,) = writer.execute("PRAGMA page_count").fetchone()
            if len(blocks) > min(BLOCKS_MAX, max(1, FRESH_PER_PAGE * pages // BLOCK)):
                self._last = blocks[-2]

    @property
    def has_work(self) -> bool:
        """Whether the next transaction should run a step."""
        return self._last is not None

    def step(self, connection: sqlite3.Connection) -> None:
        """Move the first places of all blocks that are being merged."""
        blocks = [block for block in fresh_blocks(connection) if self._last is not None and block <= self._last]
        if not blocks:
            self._last = None
            return
        (newest,) = connection.execute(_NEWEST).fetchone()
        count = max(STEP_PLACES, PACE * (newest - self._newest) if self._newest else 0)
        self._newest = newest
        merged = " UNION ALL ".join([_BLOCK] * len(blocks))
        end = connection.execute(f"{merged} ORDER BY 1, 2, 3 LIMIT 1 OFFSET ?", (*blocks, count)).fetchone()
        for statement in (_MOVE, _LEAVE):
            connection.executemany(statement, [(block, *(end or _BEHIND_ALL)) for block in blocks])

    def stepped(self) -> None:
        """Nothing to do after the transaction of a step: the next step reads what is left."""
