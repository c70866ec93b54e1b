"""The place of one response in the queue of its connection."""

import asyncio

from tidemill.servers.kafka.api import Api, Buffers


class ResponseSlot:
    """A request in progress, and its response when it is ready."""

    __slots__ = ("api", "buffers", "done", "frame_bytes", "pipelined", "started", "task")

    def __init__(self, api: Api, frame_bytes: int, started: float) -> None:
        self.api = api
        self.pipelined = api.pipelined
        self.frame_bytes = frame_bytes
        self.started = started
        self.buffers: Buffers | None = None
        self.done = False
        self.task: asyncio.Task[None] | None = None

    @property
    def waits(self) -> bool:
        """Whether the request may wait for other clients."""
        return self.api.abandoned or self.api.parked
