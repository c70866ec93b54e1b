"""Runs a node in its own thread, for tests and notebooks, with a synchronous interface."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from tidemill.app.node import Node
from tidemill.app.process import new_event_loop
from tidemill.settings import Settings

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0

T = TypeVar("T")


class NodeThread:
    """Runs one node. `start` returns when the node is ready, `stop` when everything is closed."""

    def __init__(self, settings: Settings) -> None:
        self.node = Node(settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="tidemill", daemon=True)

    def start(self) -> None:
        """Start the node. An error during the start is raised here."""
        self._thread.start()
        self._ready.result(START_TIMEOUT_S)

    def call(self, work: Callable[[Node], Coroutine[Any, Any, T]], timeout_s: float = START_TIMEOUT_S) -> T:
        """Run a coroutine on the node's event loop and return its result."""
        if self._loop is None:
            raise RuntimeError("the node is not running; call start() first")
        return asyncio.run_coroutine_threadsafe(work(self.node), self._loop).result(timeout_s)

    def stop(self) -> None:
        """Stop the node and its thread."""
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # a failed start closes the loop before its thread ends
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the node did not stop within {STOP_TIMEOUT_S:g} s")

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            await self.node.start()
        except BaseException as error:  # noqa: BLE001 -- the thread that waits for the start raises it
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)
        await self._stopping.wait()
        await self.node.stop()
