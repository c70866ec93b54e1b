"""The tables of a timeline file.

A changed page is written twice (to the WAL and to the file). On a long timeline with scattered due times every
operation on a message would change another page. So the tables follow the order in which they are used:

    messages   the content of messages, in the order of scheduling: appended, and not changed by a lease
    places     the timeline itself: the positions of messages that were never leased or moved. A row is a few bytes, so
               many are on a page; a prefetch or a count reads a short range of it
    fresh      the places of the newest messages, one order for each block of numbers, so that a batch changes few
               pages; `merge.py` moves them to `places` in the order of the timeline, many to a page at a time
    changed    position and holder of messages that were leased, released or moved: few, and in use now
    gone       the numbers of messages that are completed or cancelled and still have rows in `messages`; `sweep.py`
               removes these in the order of the file, many from a page at a time
    bodies     large bodies; a small one is in its message's row
    recurring  the rules of recurring messages: few, and read only when it is not empty

A message is in one of `fresh`, `places`, `changed` and `gone`. Its version is 1 exactly as long as it is in one of the
first two.
"""

import sqlite3

VERSION = 5
BLOCK = 32_768
"""The numbers per block of `fresh`. The rows of a file depend on it, so another size needs another version."""
INLINE_BYTES_MAX = 512
"""Bodies up to this size are in the row of their message."""

TIMELINES = """
CREATE TABLE timelines (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    settings TEXT NOT NULL
) STRICT;
"""
BODIES = """
CREATE TABLE bodies (
    seq INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
"""
MESSAGES = """
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    timeline INTEGER NOT NULL,
    id TEXT NOT NULL,
    due_ms INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    producer_group TEXT NOT NULL,
    size INTEGER NOT NULL,
    key BLOB,
    body BLOB
) STRICT;
CREATE UNIQUE INDEX message_ids ON messages (timeline, id);
CREATE TABLE places (
    timeline INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (timeline, due_ms, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE changed (
    timeline INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    seq INTEGER NOT NULL UNIQUE,
    scheduled_ms INTEGER NOT NULL,
    holder TEXT,
    token INTEGER NOT NULL,
    version INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    PRIMARY KEY (timeline, due_ms, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE gone (
    place INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL
) STRICT;
"""
FRESH = """
CREATE TABLE fresh (
    block INTEGER NOT NULL,
    timeline INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (block, timeline, due_ms, seq)
) STRICT, WITHOUT ROWID;
"""

RECURRING = """
CREATE TABLE recurring (
    seq INTEGER PRIMARY KEY,
    rule TEXT NOT NULL
) STRICT;
"""


def create(connection: sqlite3.Connection, tables: str) -> None:
    """Create the tables, in the transaction of the caller."""
    for statement in tables.split(";"):
        connection.execute(statement)
