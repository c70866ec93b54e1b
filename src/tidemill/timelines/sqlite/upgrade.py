"""Upgrades files of earlier versions to this one in bounded steps.

Version 4 had no `recurring`. Version 3 had no `fresh`: the rows of its `places` stay there. Versions 1 and 2 kept the
state of a message in its row and its place in an index; version 1 kept all bodies apart. The first step renames such
an old table, creates the new ones and sets the version of the file, so that no earlier Tidemill opens it any more. Each
further step moves some messages, and the last one drops the old table. If the process was killed, the next start
continues while the old table exists.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from tidemill.timelines.sqlite.tables import FRESH, INLINE_BYTES_MAX, MESSAGES, RECURRING, create

WITHOUT_FRESH = 3
WITHOUT_RECURRING = 4
STEP_MESSAGES = 20_000
LOG_MESSAGES = 1_000_000

_SET_ASIDE = """
DROP INDEX IF EXISTS message_leases;
DROP INDEX message_order;
DROP INDEX message_ids;
ALTER TABLE messages RENAME TO messages_before
"""
_LAST_SEQ = "INSERT INTO sqlite_sequence SELECT 'messages', seq FROM sqlite_sequence WHERE name = 'messages_before'"
_STEP_END = "SELECT max(seq) FROM (SELECT seq FROM messages_before ORDER BY seq LIMIT ?)"
_MOVE = (
    f"""
    INSERT INTO messages
    SELECT o.seq, o.timeline, o.id, o.due_ms, o.bucket, o.producer_group, o.size, o.key,
           CASE WHEN o.size <= {INLINE_BYTES_MAX}
           THEN coalesce(o.body, (SELECT b.body FROM bodies b WHERE b.seq = o.seq)) END
    FROM messages_before o WHERE o.seq <= ?1
    """,  # noqa: S608 (own text; values are bound)
    "INSERT INTO places SELECT timeline, due_ms, seq FROM messages_before WHERE seq <= ?1 AND version = 1",
    """
    INSERT INTO changed
    SELECT timeline, due_ms, seq, scheduled_ms, holder, token, version, attempts
    FROM messages_before WHERE seq <= ?1 AND version > 1
    """,
    f"""
    DELETE FROM bodies
    WHERE seq IN (SELECT seq FROM messages_before WHERE seq <= ?1 AND size <= {INLINE_BYTES_MAX})
    """,  # noqa: S608 (own text; values are bound)
    "DELETE FROM messages_before WHERE seq <= ?1",
)

log = structlog.get_logger(__name__)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit all statements of the block, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def begin(connection: sqlite3.Connection, version: int) -> None:
    """Create the tables that an earlier version lacks, and rename its table of messages if that differs."""
    create(connection, RECURRING)
    if version == WITHOUT_RECURRING:
        return
    create(connection, FRESH)
    if version == WITHOUT_FRESH:
        return
    create(connection, _SET_ASIDE)
    if version == 1:
        connection.execute("ALTER TABLE messages_before ADD COLUMN body BLOB")
    create(connection, MESSAGES)
    connection.execute(_LAST_SEQ)


def finish(connection: sqlite3.Connection, path: Path) -> None:
    """Move the messages of a renamed table, if there is one, to the tables of this version."""
    moved = 0
    while _set_aside(connection):
        with transaction(connection):
            moved += _step(connection)
        # No other connection uses the file yet, so the WAL is copied as a whole and starts again.
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        if moved % LOG_MESSAGES == 0 and _set_aside(connection):
            log.info("timeline_store_upgrading", path=str(path), messages=moved)
    if moved:
        log.info("timeline_store_upgraded", path=str(path), messages=moved)


def _set_aside(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'messages_before'").fetchone() is not None


def _step(connection: sqlite3.Connection) -> int:
    """Move some messages, or drop the old table after the last one; how many were moved."""
    (end,) = connection.execute(_STEP_END, (STEP_MESSAGES,)).fetchone()
    if end is None:
        connection.execute("DROP TABLE messages_before")
        return 0
    return [connection.execute(statement, (end,)).rowcount for statement in _MOVE][-1]
