"""The broker's side of a query process, with small programs in place of the engine, which takes seconds to load."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from tidemill.query_engine import process as process_module
from tidemill.query_engine.error_output import KEPT_BYTES_MAX
from tidemill.query_engine.frames import send
from tidemill.query_engine.process import Allowance, QueryFailed, QueryProcess, QueryProcessEnded, QueryProcesses

LIMIT_S = 60.0
ALLOWANCE = Allowance(1 << 20, 1 << 20, {})
FAKE_ENGINE = """
import json, socket, sys
from tidemill.query_engine.frames import CONTROL_BYTES_MAX, FrameKind, receive, send
peer = socket.socket(fileno=int(sys.argv[1]))
send(peer, FrameKind.READY, {"protections": []})
while True:
    request = receive(peer, CONTROL_BYTES_MAX).document()
    if "first" in request:
        send(peer, FrameKind[request["kind"]], request["first"].encode())
    if request["what"] != "failing":
        send(peer, FrameKind.RESULT, request["what"].encode())
"""
"""Answers with the name of the request, after a message that the request asks for."""
MALFORMED = {
    "no JSON": ("ERROR", "{"),
    "nested too deeply": ("ERROR", "[" * 100_000),
    "no object": ("ERROR", "[]"),
    "no fields": ("ERROR", "{}"),
    "no name": ("OPEN", "{}"),
    "unknown rows": ("OPEN", '{"name": "x", "stream": 1}'),
    "unexpected": ("READY", "{}"),
}


@pytest.fixture
def started_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Start a program in place of the query process."""

    def use(program: str) -> None:
        monkeypatch.setattr(process_module, "COMMAND", (sys.executable, "-I", "-c", program))

    return use


@asynccontextmanager
async def query_processes() -> AsyncIterator[QueryProcesses]:
    processes = QueryProcesses(ALLOWANCE, sandbox_required=False)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield processes
    finally:
        await processes.close()


async def fails_with(processes: QueryProcesses, request: dict[str, Any]) -> Exception:
    """The error of a request, after which another process has to answer the next one."""
    process = await processes.acquire()
    with pytest.raises(Exception) as failed:  # noqa: PT011 - any
        await process.call(request)
    processes.release(process)
    other = await processes.acquire()
    assert await other.call({"what": "next"}) == b"next"
    assert other.pid != process.pid
    processes.release(other)
    return failed.value


async def test_a_process_is_used_again_after_a_query_that_fails(started_with: Callable[[str], None]) -> None:
    started_with(FAKE_ENGINE)

    async with query_processes() as processes:
        process = await processes.acquire()
        with pytest.raises(QueryFailed, match="no such column"):
            await process.call({"what": "failing", "kind": "ERROR", "first": '{"code": 47, "text": "no such column"}'})
        processes.release(process)
        assert await processes.acquire() is process


@pytest.mark.parametrize("message", MALFORMED.values(), ids=MALFORMED)
async def test_a_process_that_sends_what_is_no_answer_is_not_used_again(
    started_with: Callable[[str], None], message: tuple[str, str]
) -> None:
    started_with(FAKE_ENGINE)
    kind, first = message

    async with query_processes() as processes:
        await fails_with(processes, {"what": "broken", "kind": kind, "first": first})


async def test_a_process_is_not_used_again_after_an_error_of_the_broker(
    started_with: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    started_with(FAKE_ENGINE)

    def without_memory(peer: Any, kind: Any, payload: Any = b"") -> None:
        send(peer, kind, payload)
        if isinstance(payload, dict) and payload["what"] == "large":
            raise MemoryError

    monkeypatch.setattr(process_module, "send", without_memory)

    async with query_processes() as processes:
        assert isinstance(await fails_with(processes, {"what": "large"}), MemoryError)


async def test_the_event_loop_does_not_wait_for_the_end_of_a_killed_process(
    started_with: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    started_with(FAKE_ENGINE)
    is_freed = threading.Event()
    wait = subprocess.Popen.wait

    def slow(process: "subprocess.Popen[bytes]", timeout: float | None = None) -> int:
        """As if the kernel had much memory to free."""
        assert is_freed.wait(LIMIT_S)
        return wait(process, timeout)

    try:
        async with query_processes() as processes:
            process = await processes.acquire()
            monkeypatch.setattr(subprocess.Popen, "wait", slow)
            process.kill("a test")
            process.kill("a test again")
            assert not process.is_alive
            assert not is_freed.is_set()
            is_freed.set()
            assert (await process.ended())[0] == -9
    finally:
        is_freed.set()


async def not_started(started_with: Callable[[str], None], program: str) -> dict[str, Any]:
    """What is logged about a process that does not start."""
    started_with(program)
    with capture_logs() as logged:
        async with query_processes() as processes:
            with pytest.raises(QueryProcessEnded, match="see the broker's log"):
                await processes.acquire()
    (found,) = [dict(each) for each in logged if each["event"] == "query_process_start_failed"]
    return found


async def test_the_log_has_what_a_process_wrote_that_did_not_start(started_with: Callable[[str], None]) -> None:
    found = await not_started(started_with, "raise SystemExit('the engine cannot be loaded')")
    assert found["log_level"] == "error"
    assert found["status"] == 1
    assert found["error_output"] == "the engine cannot be loaded"


async def test_the_log_has_the_end_of_what_was_written_at_length(started_with: Callable[[str], None]) -> None:
    found = await not_started(
        started_with, "import sys; sys.stderr.write('x' * 1_000_000); raise SystemExit('at last')"
    )
    assert found["error_output"].endswith("xat last")
    assert len(found["error_output"]) < KEPT_BYTES_MAX


async def test_the_log_names_a_program_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = await not_started(lambda _: monkeypatch.setattr(process_module, "COMMAND", ("/does/not/exist",)), "")
    assert "/does/not/exist" in found["reason"]


async def test_a_process_that_is_stopped_while_it_starts_is_no_error(started_with: Callable[[str], None]) -> None:
    started_with("import time; time.sleep(600)")

    with capture_logs() as logged:
        async with query_processes() as processes:
            starting = asyncio.create_task(processes.acquire())
            await asyncio.sleep(0)  # until it waits for the process
            await processes.close()
            with pytest.raises(QueryProcessEnded):
                await starting
    assert [each for each in logged if each["log_level"] == "error"] == []


async def test_a_process_that_ends_says_its_status(started_with: Callable[[str], None]) -> None:
    started_with(FAKE_ENGINE)

    async with query_processes() as processes:
        process: QueryProcess = await processes.acquire()
        process._process.terminate()
        with pytest.raises(QueryProcessEnded, match="status -15"):
            await process.call({"what": "x"})
