"""The one writer of a timeline file: a thread that commits many operations at once.

A durable commit waits for the disk, and its time hardly depends on how much was written. So operations queue up while a
commit runs, and the next transaction takes all of them: the busier the store, the cheaper each operation. An operation
reads and decides inside the transaction in which it writes, which makes it atomic.

If an operation fails half-way, the whole transaction is rolled back and its operations run again one by one, so only
the faulty one fails. An operation rejects bad input before it writes anything.

A file that was removed or replaced would accept everything and keep nothing, so the writer checks for it before each
commit.

Checkpoints (copying the WAL into the file) run concurrently on their own connection. Only when the WAL has still grown
beyond WAL_PAGES_MAX does the writer stop for one.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

import structlog

from tidemill.timelines.core.errors import StoreUnavailable, TimelineError
from tidemill.timelines.sqlite.merge import Merger
from tidemill.timelines.sqlite.schema import INDEX_CACHE_KIB, WRITER_CACHE_KIB, connect, prepare, translate
from tidemill.timelines.sqlite.sweep import Sweeper

GROUP_OPERATIONS_MAX = 256
CHECKPOINT_CHANGES = 20_000  # rare enough that pages that are written repeatedly are copied once
WAL_PAGES_MAX = 32_768

log = structlog.get_logger(__name__)

Result = TypeVar("Result")
Operation = Callable[[sqlite3.Connection], Result]


class _Job(NamedTuple):
    operation: Operation[Any]
    future: asyncio.Future[Any]


class CommitJournal(Protocol):
    """Makes a transaction durable elsewhere before it is committed."""

    written: bool
    """Whether `write` has begun: then it is not known whether a transaction that fails will be applied elsewhere."""

    def begin(self) -> None:
        """A transaction begins."""

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what the transaction has changed; returns when it is durable."""

    def failed(self) -> None:
        """The transaction was rolled back, also if `write` has begun."""


class SqliteWriter:
    """A thread with the only connection that writes."""

    def __init__(self, path: Path, journal: CommitJournal | None = None) -> None:
        self._path = path
        self._journal = journal
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._open = True
        self._file: tuple[int, int] | None = None
        self._thread = threading.Thread(target=self._run, name="timelines-writer", daemon=True)

    async def start(self) -> None:
        """Open the file; returns when it is ready."""
        self._thread.start()
        await asyncio.shield(self._opened)

    async def do(self, operation: Operation[Result]) -> Result:
        """Run the operation in a transaction; returns when it is durable."""
        if not self._open:
            raise StoreUnavailable("the timeline store is closed")
        future: asyncio.Future[Result] = self._loop.create_future()
        self._queue.put(_Job(operation, future))
        return await future

    async def close(self) -> None:
        """Finish accepted operations."""
        if self._open:
            self._open = False
            self._queue.put(None)
        await asyncio.shield(self._ended)

    def _run(self) -> None:
        try:
            connection = connect(self._path, WRITER_CACHE_KIB if self._journal is None else INDEX_CACHE_KIB)
            prepare(connection, self._path)
            if self._journal is not None:
                connection.execute("PRAGMA synchronous = NORMAL")  # what a power failure takes is in the journal
            self._file = _file_at(self._path)
        except (sqlite3.Error, TimelineError) as error:
            failure = translate(error, self._path) if isinstance(error, sqlite3.Error) else error
            self._report(self._opened, None, failure)
            self._report(self._ended, None, None)
            return
        self._report(self._opened, None, None)
        checkpointer, sweeper, merger = _Checkpointer(self._path), Sweeper(self._path), Merger()
        while group := self._next_group():
            try:
                self._work(connection, group, (sweeper, merger))
                for watch in (sweeper, merger, checkpointer):
                    watch.look(connection)
            except Exception as error:  # the thread has the only connection that writes: it must not end
                log.exception("timeline_store_failed", path=str(self._path))
                failure = StoreUnavailable(f"the timeline store failed unexpectedly: {error!r}; see the log")
                self._settle(group, [failure] * len(group))
        sweeper.close()
        checkpointer.close()
        connection.close()
        self._report(self._ended, None, None)

    def _work(self, connection: sqlite3.Connection, group: list[_Job], maintenance: Sequence[Sweeper | Merger]) -> None:
        """Commit a group of operations, with a step of each maintenance task that has work."""
        if connection.in_transaction:  # an earlier rollback failed
            connection.execute("ROLLBACK")
        operations = [job.operation for job in group]
        due = [task for task in maintenance if task.has_work]
        results = self._commit(connection, [*operations, *(task.step for task in due)])
        for task, failure in zip(due, results[len(group) :], strict=True):
            if failure is None:
                task.stepped()
        self._settle(group, results[: len(group)])

    def _next_group(self) -> list[_Job]:
        job = self._queue.get()
        group: list[_Job] = []
        while job is not None:
            group.append(job)
            if len(group) == GROUP_OPERATIONS_MAX or self._queue.empty():
                return group
            job = self._queue.get()
        self._queue.put(None)  # the end was reached: the next call must find the marker again
        return group

    def _commit(self, connection: sqlite3.Connection, operations: Sequence[Operation[Any]]) -> list[Any]:
        """The result of each operation, or the error it ended with."""
        journal = self._journal
        try:
            self._check_there()
            connection.execute("BEGIN IMMEDIATE")
            if journal is not None:
                journal.begin()
            results = [_attempt(operation, connection) for operation in operations]
            if journal is not None:
                journal.write(connection)
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 (whatever went wrong must reach its caller, not end the thread)
            _roll_back(connection)
            if journal is not None:
                journal.failed()
            failure = translate(error, self._path) if isinstance(error, sqlite3.Error) else error
            if len(operations) == 1 or (journal is not None and journal.written):
                return [failure] * len(operations)
            return [result for operation in operations for result in self._commit(connection, [operation])]
        return results

    def _check_there(self) -> None:
        if _file_at(self._path) != self._file:
            raise StoreUnavailable(
                f"{self._path} was removed or replaced while the broker runs: nothing can be stored; restart the broker"
            )

    def _settle(self, group: list[_Job], results: list[Any]) -> None:
        def resolve_all() -> None:
            for job, result in zip(group, results, strict=True):
                _resolve(job.future, result)

        self._call(resolve_all)

    def _report(self, future: asyncio.Future[None], value: None, error: BaseException | None) -> None:
        self._call(lambda: _resolve(future, error or value))

    def _call(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # a closed loop has no waiters left
            self._loop.call_soon_threadsafe(callback)


class _Checkpointer:
    """Copies the WAL into the file while the writer works, on one thread with one connection.

    A connection for each checkpoint would leak its file descriptor and the memory of its thread: SQLite closes no file
    that other connections of the process have locked, and in WAL mode they always have.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "timelines-checkpoint")
        self._connection: sqlite3.Connection | None = None
        self._running: Future[None] | None = None
        self._changes_seen = 0
        self._log_pages = 0

    def look(self, writer: sqlite3.Connection) -> None:
        """Start a checkpoint after some changes; run one in this thread when the WAL has grown far too long."""
        changes = writer.total_changes
        if changes - self._changes_seen < CHECKPOINT_CHANGES or (self._running and not self._running.done()):
            return
        self._changes_seen = changes
        if self._log_pages >= WAL_PAGES_MAX:
            self._checkpoint(writer)
        else:
            self._running = self._thread.submit(self._run)

    def close(self) -> None:
        """Wait for a running checkpoint."""
        self._thread.submit(self._disconnect)
        self._thread.shutdown()

    def _run(self) -> None:
        with suppress(sqlite3.Error):
            self._connection = self._connection or connect(self._path)
            self._checkpoint(self._connection)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        # A failure loses nothing: the WAL stays as it is, and a disk that is full or broken fails the next commit.
        with suppress(sqlite3.Error):
            _, self._log_pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def _file_at(path: Path) -> tuple[int, int] | None:
    """Identify the file at this path, by device and inode."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _attempt(operation: Operation[Any], connection: sqlite3.Connection) -> Any:
    try:
        return operation(connection)
    except TimelineError as error:
        return error  # rejected before anything was written; the others continue


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
