"""The thread of an export ends, whatever the collector does."""

import asyncio
import socket
import threading

import pytest
import requests

from tidemill.app.otlp.abortable_session import AbortableSession
from tidemill.app.otlp.export_thread import ExportThread


async def test_results_and_errors_reach_the_caller() -> None:
    thread = ExportThread("tidemill-test")
    assert await thread.run(lambda: threading.current_thread().name) == "tidemill-test"
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    assert await thread.stop(30)


async def test_a_caller_may_give_up() -> None:
    thread, may_end = ExportThread("tidemill-test"), threading.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(thread.run(lambda: may_end.wait(30)), 0.01)
    assert not await thread.stop(0.01)
    may_end.set()
    assert await thread.stop(30)


async def test_a_request_without_an_answer_is_aborted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        session, thread = AbortableSession(), ExportThread("tidemill-test")
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        waiting = asyncio.create_task(thread.run(lambda: session.post(url, b"x", timeout=100)))
        connection = await asyncio.to_thread(accepted, silent)
        session.abort()
        with pytest.raises(requests.ConnectionError):
            await asyncio.wait_for(waiting, 30)
        with pytest.raises(requests.ConnectionError):  # a connection after the abort is closed at once
            await thread.run(lambda: session.post(url, b"x", timeout=100))
        assert await thread.stop(30)
        session.close()
        connection.close()


def accepted(silent: socket.socket) -> socket.socket:
    """A connection on which a request has begun."""
    connection, _ = silent.accept()
    connection.recv(1)
    return connection
