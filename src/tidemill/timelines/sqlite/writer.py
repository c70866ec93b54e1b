"""The one writer of a timeline file: a thread that commits many operations at once.

A durable commit waits for the disk, and the disk does not care how much was written. So operations queue up while a
commit is under way, and the next transaction takes all of them: the busier the store, the cheaper each operation. An
operation decides by reading inside the transaction in which it writes, which makes each one atomic.

If an operation fails half way, the whole transaction is rolled back and its operations run again one by one, so that
only the one at fault fails. An operation refuses bad input before it writes anything.

A file that was removed or replaced would take everything and keep nothing, so that is looked at before each commit.

Checkpoints (copying the log of changes into the file) run beside the writer on a connection of their own; only when the
log has grown past WAL_PAGES_MAX all the same, the writer stops for one.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import structlog

from tidemill.timelines.core.errors import StoreUnavailable, TimelineError
from tidemill.timelines.sqlite.merge import Merger
from tidemill.timelines.sqlite.schema import WRITER_CACHE_KIB, connect, prepare, translate
from tidemill.timelines.sqlite.sweep import Sweeper

GROUP_OPERATIONS_MAX = 256
CHECKPOINT_CHANGES = 20_000  # rare enough that pages written again and again are copied once
WAL_PAGES_MAX = 32_768

log = structlog.get_logger(__name__)

Result = TypeVar("Result")
Operation = Callable[[sqlite3.Connection], Result]


class _Job(NamedTuple):
    operation: Operation[Any]
    future: asyncio.Future[Any]


class SqliteWriter:
    """A thread with the only connection that writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
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
        """Finish what was accepted."""
        if self._open:
            self._open = False
            self._queue.put(None)
        await asyncio.shield(self._ended)

    def _run(self) -> None:
        try:
            connection = connect(self._path, WRITER_CACHE_KIB)
            prepare(connection, self._path)
            self._file = _file_at(self._path)
        except (sqlite3.Error, TimelineError) as error:
            failure = translate(error, self._path) if isinstance(error, sqlite3.Error) else error
            self._tell(self._opened, None, failure)
            self._tell(self._ended, None, None)
            return
        self._tell(self._opened, None, None)
        checkpointer, sweeper, merger = _Checkpointer(self._path), Sweeper(self._path), Merger()
        while group := self._next_group():
            try:
                self._work(connection, group, (sweeper, merger))
                for watch in (sweeper, merger, checkpointer):
                    watch.look(connection)
            except Exception as error:  # the thread is the only way to the file: it must not end
                log.exception("the timeline store met an unexpected error", path=str(self._path))
                failure = StoreUnavailable(f"the timeline store met an unexpected error: {error!r}")
                self._settle(group, [failure] * len(group))
        sweeper.close()
        checkpointer.close()
        connection.close()
        self._tell(self._ended, None, None)

    def _work(self, connection: sqlite3.Connection, group: list[_Job], chores: Sequence[Sweeper | Merger]) -> None:
        """Commit a group of operations, with a step of each chore that has something to do."""
        if connection.in_transaction:  # a rollback failed before
            connection.execute("ROLLBACK")
        operations = [job.operation for job in group]
        due = [chore for chore in chores if chore.has_work]
        results = self._commit(connection, [*operations, *(chore.step for chore in due)])
        for chore, failure in zip(due, results[len(group) :], strict=True):
            if failure is None:
                chore.stepped()
        self._settle(group, results[: len(group)])

    def _next_group(self) -> list[_Job]:
        job = self._queue.get()
        group: list[_Job] = []
        while job is not None:
            group.append(job)
            if len(group) == GROUP_OPERATIONS_MAX or self._queue.empty():
                return group
            job = self._queue.get()
        self._queue.put(None)  # the end was reached: whoever looks next finds it again
        return group

    def _commit(self, connection: sqlite3.Connection, operations: Sequence[Operation[Any]]) -> list[Any]:
        """The result of each operation, or the error it ended with."""
        try:
            self._check_there()
            connection.execute("BEGIN IMMEDIATE")
            results = [_attempt(operation, connection) for operation in operations]
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 (whatever went wrong must reach its caller, not end the thread)
            _roll_back(connection)
            if len(operations) == 1:
                return [translate(error, self._path) if isinstance(error, sqlite3.Error) else error]
            return [result for operation in operations for result in self._commit(connection, [operation])]
        return results

    def _check_there(self) -> None:
        if _file_at(self._path) != self._file:
            raise StoreUnavailable(
                f"{self._path} was removed or replaced while the broker runs: nothing is kept; start it again"
            )

    def _settle(self, group: list[_Job], results: list[Any]) -> None:
        def tell() -> None:
            for job, result in zip(group, results, strict=True):
                _resolve(job.future, result)

        self._call(tell)

    def _tell(self, future: asyncio.Future[None], value: None, error: BaseException | None) -> None:
        self._call(lambda: _resolve(future, error or value))

    def _call(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # a loop that is closed has nobody left to tell
            self._loop.call_soon_threadsafe(callback)


class _Checkpointer:
    """Copies the log into the file while the writer works, on one thread with one connection.

    A connection for each checkpoint would leave its descriptor and the memory of its thread behind: SQLite closes no
    file that other connections of the process have locked, and in WAL mode they always have.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "timelines-checkpoint")
        self._connection: sqlite3.Connection | None = None
        self._running: Future[None] | None = None
        self._changes_seen = 0
        self._log_pages = 0

    def look(self, writer: sqlite3.Connection) -> None:
        """Start a checkpoint after some changes; run one here when the log has grown far too long."""
        changes = writer.total_changes
        if changes - self._changes_seen < CHECKPOINT_CHANGES or (self._running and not self._running.done()):
            return
        self._changes_seen = changes
        if self._log_pages >= WAL_PAGES_MAX:
            self._checkpoint(writer)
        else:
            self._running = self._thread.submit(self._run)

    def close(self) -> None:
        """Wait for a checkpoint under way."""
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
        # A failure loses nothing: the log stays as it is, and a disk that is full or broken fails the next commit.
        with suppress(sqlite3.Error):
            _, self._log_pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file this is now."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _attempt(operation: Operation[Any], connection: sqlite3.Connection) -> Any:
    try:
        return operation(connection)
    except TimelineError as error:
        return error  # refused before anything was written; the others go on


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
