"""The place of one response in the queue of its connection."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

from tidemill.servers.kafka.api import Api, Buffers


class ResponseSlot:
    """A request in progress, and its response when it is ready."""

    __slots__ = ("api", "buffers", "done", "frame_bytes", "handling", "pipelined", "started", "task")

    def __init__(self, api: Api, frame_bytes: int, started: float) -> None:
        self.api = api
        self.pipelined = api.pipelined
        self.frame_bytes = frame_bytes
        self.started = started
        self.buffers: Buffers | None = None
        self.done = False
        self.task: asyncio.Task[None] | None = None
        self.handling: Awaitable[Any] | None = None
        """What the handler returned, when it was called before the task began."""

    @property
    def waits(self) -> bool:
        """Whether the request may wait for other clients."""
        return self.api.abandoned or self.api.parked

    def cancel(self) -> None:
        """Cancel the request. A task that has not begun never awaits its handler, which is closed instead."""
        if self.task is None:
            return
        self.task.cancel()
        if isinstance(self.handling, Coroutine):
            handling = self.handling
            self.task.add_done_callback(lambda _: handling.close())
