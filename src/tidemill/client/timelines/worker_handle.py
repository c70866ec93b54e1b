"""What a program can do with the worker that received a lease: report that it is busy or ready, and read the load."""

from collections.abc import Callable, Coroutine
from typing import Any

from tidemill.client.timelines.clock_state import ClockState
from tidemill.client.timelines.worker import TimelineLoad, Worker


class _Handle:
    """The common part of both handles."""

    __slots__ = ("_worker",)

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def is_busy(self) -> bool:
        """Whether the worker has reported that it is busy."""
        return self._worker.is_busy

    @property
    def clock(self) -> ClockState | None:
        """The broker's clock, and which clocks differ from it; None while there is nothing to report."""
        return self._worker.clock.state

    @property
    def load(self) -> TimelineLoad | None:
        """What waits for the consumers of the timeline; None until the broker has sent it, in the first seconds."""
        return self._worker.load


class AsyncWorkerHandle(_Handle):
    """The worker of a lease: `WorkerHandle` for asyncio, with the same names."""

    __slots__ = ()

    async def busy(self) -> None:
        """Request no more messages. Leases that the worker has stay valid."""
        await self._worker.set_busy(busy=True)

    async def ready(self) -> None:
        """Request messages again."""
        await self._worker.set_busy(busy=False)


class WorkerHandle(_Handle):
    """The worker of a lease. It is one consumer of the timeline, so all leases of one `work` loop share it.

    Any thread may call these methods. They return at once: a message that is on its way still arrives.
    """

    __slots__ = ("_run",)

    def __init__(self, worker: Worker, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        super().__init__(worker)
        self._run = run

    def busy(self) -> None:
        """Request no more messages. Leases that the worker has stay valid; the other consumers get its share."""
        self._run(self._worker.set_busy(busy=True))

    def ready(self) -> None:
        """Request messages again."""
        self._run(self._worker.set_busy(busy=False))
