"""The tables of a timeline file.

A page that is changed is written twice (to the log of changes and to the file), and on a long timeline with due times
all over it everything that is done to a message would change another page. So the tables follow the order in which they
are used:

    messages   what a message carries, in the order of scheduling: written at the end, and not changed by a lease
    places     the timeline itself: where messages stand that nobody has touched yet. A row is a few bytes, so that many
               are on a page; a prefetch reads a short range of it, and counts walk it
    fresh      the places of the newest messages, a timeline for each block of numbers, so that a batch changes few
               pages; `merge.py` moves them to `places` in the order of the timeline, many to a page at a time
    changed    where messages stand that were leased, released or moved, and who holds them: few, and in use now
    gone       the numbers of messages that are completed or cancelled and whose rows in `messages` are still there;
               `sweep.py` removes these in the order of the file, many from a page at a time
    bodies     large bodies; a small one is in its message's row

A message is in one of `fresh`, `places`, `changed` and `gone`. Its version is 1 exactly as long as it is in one of the
first two.
"""

import sqlite3

VERSION = 4
BLOCK = 32_768
"""So many numbers share a block of `fresh`; a file has it in its rows, so another size is another version."""
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


def create(connection: sqlite3.Connection, tables: str) -> None:
    """Make the tables, in the transaction of the caller."""
    for statement in tables.split(";"):
        connection.execute(statement)
