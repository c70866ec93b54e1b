"""How a timeline file is opened, and what SQLite's errors mean here.

WAL with synchronous=FULL is the only setting that loses nothing at a power cut and still commits quickly: NORMAL loses
the commits since the last checkpoint.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.timelines.core.errors import StoreCorrupt, StoreTooNew, StoreUnavailable, TimelineError
from tidemill.timelines.sqlite import upgrade
from tidemill.timelines.sqlite.tables import BODIES, FRESH, MESSAGES, TIMELINES, VERSION, create

APPLICATION_ID = 0x544D544C  # "TMTL", so that another program's file is not mistaken for ours
BUSY_MS = 5_000
WRITER_CACHE_KIB = 64 * 1024
READER_CACHE_KIB = 2 * 1024
"""After each commit of the writer a reader begins with an empty cache: what one look at a timeline needs is enough."""
STATEMENTS_CACHED = 64
CONNECTIONS_MAX = 5
"""What a store has open: the writer, its checkpoints, a sweep, and two readers. Each opened at its first use."""
NO_ROOM = {sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_SHMOPEN}
"""I/O errors that a full disk causes: no room for the file that the connections share beside the log of changes."""


def connect(path: Path, cache_kib: int = READER_CACHE_KIB) -> sqlite3.Connection:
    """A connection for the thread that calls, with the settings that the promises rest on."""
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=STATEMENTS_CACHED)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make a new file into a timeline store, or check that an old one is, and bring it to this version."""
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreUnavailable(f"{path}: the file system does not allow write-ahead logging (mode {mode!r})")
    with upgrade.transaction(connection):
        _check_or_create(connection, path)
    upgrade.finish(connection, path)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as errors of timelines."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error


def translate(error: sqlite3.Error, path: Path) -> TimelineError:
    """The error of timelines that an error of SQLite means."""
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code == sqlite3.SQLITE_FULL or extended in NO_ROOM:
        return StoreUnavailable(f"{path}: the disk is full; make room and try again ({error})")
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreCorrupt(f"{path} is damaged ({error}); restore it from a copy or move it away")
    return StoreUnavailable(f"{path}: {error}")


def _check_or_create(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if not tables and not application:
        create(connection, TIMELINES + BODIES + MESSAGES + FRESH)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    elif application != APPLICATION_ID:
        raise StoreCorrupt(f"{path} is an SQLite file, but not a timeline store; choose another path")
    elif version < VERSION:
        upgrade.begin(connection, version)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    elif version > VERSION:
        raise StoreTooNew(f"{path} has schema version {version}, this Tidemill knows {VERSION}; upgrade Tidemill")
