"""Opens a timeline file, and translates SQLite's errors.

WAL with synchronous=FULL is the only setting that loses nothing in a power failure and still commits quickly: NORMAL
loses the commits since the last checkpoint.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.timelines.core.errors import StoreCorrupt, StoreTooNew, StoreUnavailable, TimelineError
from tidemill.timelines.sqlite import upgrade
from tidemill.timelines.sqlite.tables import BODIES, FRESH, MESSAGES, RECURRING, TIMELINES, VERSION, create

APPLICATION_ID = 0x544D544C  # "TMTL", so that another program's file is not mistaken for ours
BUSY_MS = 5_000
WRITER_CACHE_KIB = 64 * 1024
INDEX_CACHE_KIB = 16 * 1024
"""For the index of a partition of replicated timelines: a broker has several."""
READER_CACHE_KIB = 2 * 1024
"""After each commit of the writer a reader starts with an empty cache, so the needs of one read are enough."""
STATEMENTS_CACHED = 64
CONNECTIONS_MAX = 5
"""The connections of a store: the writer, its checkpoints, a sweep, and two readers. Each is opened when needed."""
DISK_FULL = {sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_SHMOPEN}
"""I/O errors that a full disk causes: no space for the shared-memory file next to the WAL."""


def connect(path: Path, cache_kib: int = READER_CACHE_KIB) -> sqlite3.Connection:
    """A connection for the calling thread, with the settings that durability depends on."""
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=STATEMENTS_CACHED)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the store in a new file, or check an existing one and upgrade it to this version."""
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreUnavailable(f"{path}: the file system does not support WAL (mode {mode!r}); choose another path")
    with upgrade.transaction(connection):
        _check_or_create(connection, path)
    upgrade.finish(connection, path)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate SQLite's errors to errors of timelines."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error


def translate(error: sqlite3.Error, path: Path) -> TimelineError:
    """The error of timelines for an error of SQLite."""
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code == sqlite3.SQLITE_FULL or extended in DISK_FULL:
        return StoreUnavailable(f"{path}: the disk is full; free disk space and try again ({error})")
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreCorrupt(f"{path} is damaged ({error}); restore it from a backup or move it away")
    return StoreUnavailable(f"{path}: {error}")


def _check_or_create(connection: sqlite3.Connection, path: Path) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if not tables and not application:
        create(connection, TIMELINES + BODIES + MESSAGES + FRESH + RECURRING)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    elif application != APPLICATION_ID:
        raise StoreCorrupt(f"{path} is an SQLite file, but not a timeline store; choose another path")
    elif version < VERSION:
        upgrade.begin(connection, version)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    elif version > VERSION:
        raise StoreTooNew(f"{path} has schema version {version}, this Tidemill knows {VERSION}; upgrade Tidemill")
