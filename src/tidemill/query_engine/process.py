"""Manages query processes: starts them on demand, reuses them, and kills them when a query exceeds a limit.

Each conversation runs on its own thread, because it blocks on the socket and on rows from the event loop. Killing the
process closes the socket, which ends the thread. Processes must be started on the event loop's thread, because the
kernel ends a process with the thread that started it. Other threads wait for dead processes, because the kernel needs a
while to free their memory.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast

import pyarrow as pa
import structlog

from tidemill.query_engine.confinement import SECCOMP
from tidemill.query_engine.error_output import ErrorOutput
from tidemill.query_engine.frames import CONTROL_BYTES_MAX, FrameKind, PeerClosed, receive, send

COMMAND = (sys.executable, "-I", "-m", "tidemill.query_engine.child")
START_S = 60.0
IDLE_S = 300.0
"""How long an idle process is kept."""
IDLE_MAX = 1
MEMORY_LOOK_S = 0.05
MEMORY_SLACK = 4
"""A process may use a quarter more than a query, because the allocator keeps some memory."""
RESULT_COPIES = 4
"""Copies of a result while it is built, which the engine does not count."""
NOT_STARTED = "the query process did not start; see the broker's log"
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")

T = TypeVar("T")

log = structlog.get_logger("tidemill.sql")


class QueryFailed(Exception):
    """The engine reported an error. `code` is its number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class QueryProcessEnded(Exception):
    """The process has ended. The text gives the reason for the client."""


class SandboxMissing(Exception):
    """Processes cannot be confined on this machine."""


class Allowance(NamedTuple):
    """The limits of one query."""

    memory_bytes: int
    result_bytes: int
    settings: Mapping[str, Any]
    """Settings of the engine, `readonly` last."""


class QueryProcess:
    """One process, for one query at a time."""

    def __init__(self, allowance: Allowance) -> None:
        self.protections: list[str] = []
        self._allowance = allowance
        self._why = ""
        self._idle_bytes = 0
        self._peer, other = socket.socketpair()
        arguments = [str(other.fileno()), str(os.getpid()), str(allowance.memory_bytes)]
        with other:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own module
                    [*COMMAND, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    cwd="/",
                    env={},
                    pass_fds=[other.fileno()],
                    process_group=0,
                )
            except OSError:
                self._peer.close()
                raise
        self._error_output = ErrorOutput(cast("IO[bytes]", self._process.stderr))

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can run a query."""
        return not self._why and self._process.poll() is None

    async def ready(self) -> None:
        """Wait until the engine is loaded and confined."""
        async with asyncio.timeout(START_S):
            frame = await _in_thread(lambda: receive(self._peer, CONTROL_BYTES_MAX))
            if frame.kind is not FrameKind.READY:
                raise PeerClosed
            self.protections = frame.document()["protections"]
            await self.call({"what": "configure", "settings": dict(self._allowance.settings)})
        self._idle_bytes = _resident_bytes(self.pid)

    async def call(self, request: Mapping[str, Any], rows: Mapping[str, Any] | None = None) -> bytes:
        """Return the result of a request. Only after QueryFailed can the process take another request.

        After any other error, messages of this request may still arrive, and the next request would read them.
        """
        watching = asyncio.create_task(self._watch_memory())
        try:
            return await _in_thread(lambda: self._converse(request, rows or {}))
        except QueryFailed:
            raise
        except PeerClosed:
            why = self._why
            self.kill("the query process ended")  # it may be dying, or have sent a malformed message
            status, _ = await self.ended()
            raise QueryProcessEnded(why or f"the query process ended (status {status})") from None
        except asyncio.CancelledError:
            self.kill("the query was cancelled")
            raise
        except BaseException:
            self.kill("a query failed unexpectedly")
            raise
        finally:
            watching.cancel()

    def kill(self, why: str) -> None:
        """Kill the process. A thread waits for its end. Does nothing when it was killed before."""
        if self._why:
            return
        self._why = why
        with contextlib.suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)
        self._peer.close()
        self._process.kill()
        threading.Thread(target=self._process.wait, name="sql-reaper", daemon=True).start()

    async def ended(self) -> tuple[int, str]:
        """Wait until a killed process has ended. Return its status, and its standard error output from the start."""
        return await _in_thread(lambda: (self._process.wait(), self._error_output.text()))

    def _converse(self, request: Mapping[str, Any], rows: Mapping[str, Any]) -> bytes:
        streams: dict[int, pa.RecordBatchReader] = {}
        bytes_max = max(CONTROL_BYTES_MAX, self._allowance.result_bytes)
        send(self._peer, FrameKind.REQUEST, dict(request))
        while True:
            frame = receive(self._peer, bytes_max)
            if frame.kind is FrameKind.RESULT:
                return frame.payload
            document = frame.document()
            if frame.kind is FrameKind.ERROR:
                raise QueryFailed(document["code"], document["text"])
            if frame.kind is FrameKind.OPEN and document["name"] in rows:
                reader = pa.RecordBatchReader.from_stream(rows[document["name"]])
                streams[document["stream"]] = reader
                send(self._peer, FrameKind.ROWS, memoryview(reader.schema.serialize()))
            elif frame.kind is FrameKind.PULL and document["stream"] in streams:
                self._send_batch(streams[document["stream"]])
            else:
                raise PeerClosed

    def _send_batch(self, reader: pa.RecordBatchReader) -> None:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            send(self._peer, FrameKind.END)
        except (pa.ArrowException, OSError):  # the rows keep the reason
            send(self._peer, FrameKind.FAILED)
        else:
            send(self._peer, FrameKind.ROWS, memoryview(batch.serialize()))

    async def _watch_memory(self) -> None:
        memory_bytes, result_bytes = self._allowance.memory_bytes, self._allowance.result_bytes
        allowed = memory_bytes + memory_bytes // MEMORY_SLACK + RESULT_COPIES * result_bytes
        while True:
            await asyncio.sleep(MEMORY_LOOK_S)
            if self._idle_bytes and _resident_bytes(self.pid) > self._idle_bytes + allowed:
                self.kill("the query exceeded tidemill.sql.max.memory.bytes; read fewer rows or raise the limit")
                return


class QueryProcesses:
    """The processes of one broker: one for each running query, and one that waits for the next."""

    def __init__(self, allowance: Allowance, *, sandbox_required: bool) -> None:
        self._allowance = allowance
        self._sandbox_required = sandbox_required
        self._idle: list[QueryProcess] = []
        self._busy: set[QueryProcess] = set()
        self._forgetting: asyncio.TimerHandle | None = None

    async def acquire(self) -> QueryProcess:
        """Return a process that is ready for a query."""
        self._keep_idle()
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                self._busy.add(process)
                return process
        process = await self._start()
        log.info("query_process_started", pid=process.pid, protections=", ".join(process.protections))
        if self._sandbox_required and SECCOMP not in process.protections:
            self._end(process, "no sandbox")
            raise SandboxMissing
        return process

    def release(self, process: QueryProcess) -> None:
        """Return a process after its query."""
        self._busy.discard(process)
        if process.is_alive and len(self._idle) < IDLE_MAX:
            self._idle.append(process)
            self._keep_idle()
            self._forgetting = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)
        else:
            process.kill("the query process is not needed")

    async def close(self) -> None:
        """Kill all processes, also those that run a query."""
        self._keep_idle()
        processes = [*self._idle, *self._busy]
        self._end_idle()
        for process in list(self._busy):
            self._end(process, "the broker stops")
        await asyncio.gather(*(process.ended() for process in processes))

    async def _start(self) -> QueryProcess:
        try:
            process = QueryProcess(self._allowance)
        except OSError as error:
            log.error("query_process_start_failed", reason=str(error))
            raise QueryProcessEnded(NOT_STARTED) from error
        self._busy.add(process)
        try:
            await process.ready()
        except Exception as error:
            is_wanted = process in self._busy
            self._end(process, "the query process did not start")
            status, output = await process.ended()
            if is_wanted:  # not when the broker is stopping
                reason = str(error) or type(error).__name__
                log.error(
                    "query_process_start_failed", pid=process.pid, status=status, reason=reason, error_output=output
                )
            raise QueryProcessEnded(NOT_STARTED) from error
        except BaseException:
            self._end(process, "the query was cancelled")
            raise
        return process

    def _end(self, process: QueryProcess, why: str) -> None:
        self._busy.discard(process)
        process.kill(why)

    def _end_idle(self) -> None:
        while self._idle:
            self._idle.pop().kill("the query process was idle")

    def _keep_idle(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None


def _resident_bytes(pid: int) -> int:
    """Return the memory of a process in bytes, or 0 where the platform does not report it."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


async def _in_thread(call: Callable[[], T]) -> T:
    """Run a call on a daemon thread and return its result. A stopping broker does not wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(done: Callable[[], None]) -> None:
        if not future.done():
            done()

    def run() -> None:
        try:
            done = partial(future.set_result, call())
        except BaseException as error:  # noqa: BLE001 - raised in the caller
            done = partial(future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, done)

    threading.Thread(target=run, name="sql", daemon=True).start()
    return await future
