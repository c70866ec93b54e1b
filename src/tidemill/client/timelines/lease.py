"""A consumer's lease, for asyncio and for threads: the same data and the same three operations."""

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from tidemill.client.timelines.message import from_ms
from tidemill.client.timelines.worker import TimelineLoad, Worker, release_of
from tidemill.client.timelines.worker_handle import AsyncWorkerHandle, WorkerHandle
from tidemill.wire.grpc import timeline_pb2 as wire

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


class _Held:
    """The common part of both lease classes."""

    __slots__ = ("_expires_ms", "_lease", "_worker")

    def __init__(self, worker: Worker, lease: wire.Lease) -> None:
        self._worker = worker
        self._lease = lease
        self._expires_ms = lease.expires_ms

    @property
    def id(self) -> str:
        """The message's id."""
        return self._lease.id

    @property
    def body(self) -> bytes:
        """The message's body."""
        return self._lease.body

    @property
    def key(self) -> bytes | None:
        """The message's key, if it has one."""
        return self._lease.key if self._lease.HasField("key") else None

    @property
    def due(self) -> datetime:
        """When the message was due, in UTC."""
        return from_ms(self._lease.due_ms)

    @property
    def attempts(self) -> int:
        """How many leases the message has had, with this one."""
        return self._lease.attempts

    @property
    def expires(self) -> datetime:
        """When this lease ends, in UTC, by the broker's clock."""
        return from_ms(self._expires_ms)

    @property
    def timeline_load(self) -> TimelineLoad | None:
        """What waits for the consumers of the timeline; None until the broker has sent it, in the first seconds."""
        return self._worker.load

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, due={self.due.isoformat()}, attempts={self.attempts})"

    async def _complete(self) -> None:
        await self._worker.operate(
            wire.Operation(action=wire.ACTION_COMPLETE, seq=self._lease.seq, token=self._lease.token)
        )

    async def _release(self, delay_ms: int) -> None:
        await self._worker.operate(release_of(self._lease, delay_ms))

    async def _extend(self, ms: int) -> None:
        operation = wire.Operation(action=wire.ACTION_EXTEND, seq=self._lease.seq, token=self._lease.token, ms=ms)
        self._expires_ms = await self._worker.operate(operation)


class AsyncLease(_Held):
    """A consumer's lease of one message: `Lease` for asyncio, with the same names."""

    __slots__ = ()

    @property
    def worker(self) -> AsyncWorkerHandle:
        """The worker that received this lease: it can report that it is busy."""
        return AsyncWorkerHandle(self._worker)

    async def complete(self) -> None:
        """Complete the message: it is deleted permanently."""
        await self._complete()

    async def release(self, *, delay_ms: int = 0) -> None:
        """Release the message; it is due again after the delay."""
        await self._release(delay_ms)

    async def extend(self, *, ms: int) -> None:
        """Extend the lease to `ms` milliseconds from now."""
        await self._extend(ms)


class Lease(_Held):
    """A consumer's lease of one message, until `expires`.

    Call `complete` when the work is done, `extend` when it takes longer, `release` to let another consumer try.
    Otherwise the lease expires and the message is delivered again. Then these three raise StaleLease and change
    nothing.
    """

    __slots__ = ("_run",)

    def __init__(self, worker: Worker, lease: wire.Lease, run: "Run[None]") -> None:
        super().__init__(worker, lease)
        self._run = run

    @property
    def worker(self) -> WorkerHandle:
        """The worker that received this lease: it can report that it is busy."""
        return WorkerHandle(self._worker, self._run)

    def complete(self) -> None:
        """Complete the message: it is deleted permanently."""
        self._run(self._complete())

    def release(self, *, delay_ms: int = 0) -> None:
        """Release the message; it is due again after the delay."""
        self._run(self._release(delay_ms))

    def extend(self, *, ms: int) -> None:
        """Extend the lease to `ms` milliseconds from now."""
        self._run(self._extend(ms))
