"""Reminders on a timeline: schedules messages a few seconds ahead, and measures how late a worker gets them.

No message may ever be early.

The client uses the broker's gRPC server, but runs on the event loop of the broker's thread. gRPC has one poller for all
loops of a process, which logs errors when one of them is closed.
"""

import asyncio
import random
import threading
import time
from collections import deque
from dataclasses import dataclass

from tidemill.app.node import Node
from tidemill.app.thread import NodeThread
from tidemill.client.timelines import AsyncLease, AsyncTimeline, Message

TIMELINE = "reminders"
LEASE_MS = 30_000
PER_TICK = 5
TICK_S = 0.25
AHEAD_S = (1.0, 4.0)
MEASURED_MAX = 10_000
"""The number of newest measurements in the percentiles."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """Percentiles of the lateness of messages, in milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float


def lateness(measured_ms: list[float]) -> Lateness | None:
    """The percentiles. None without measurements."""
    if not measured_ms:
        return None
    ordered = sorted(measured_ms)
    last = len(ordered) - 1
    return Lateness(ordered[last // 2], ordered[last * 99 // 100], ordered[last])


class Reminders:
    """Schedules and consumes messages until `stop`."""

    def __init__(self, broker: NodeThread, seed: int) -> None:
        self.scheduled = 0
        self.delivered = 0
        self.early = 0
        self.error: BaseException | None = None
        self._broker = broker
        self._random = random.Random(seed)  # noqa: S311 - demo data, no security
        self._began_ms = time.time() * 1_000
        self._measured_ms: deque[float] = deque(maxlen=MEASURED_MAX)
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="demo-reminders", daemon=True)

    @property
    def lateness(self) -> Lateness | None:
        """The lateness of the newest messages."""
        return lateness(list(self._measured_ms))

    def start(self) -> None:
        """Start scheduling and consuming."""
        self._thread.start()

    def stop(self) -> None:
        """Stop both. Messages that are not due stay on the timeline."""
        if self._thread.is_alive():
            self._broker.call(self._ask_to_stop)
            self._thread.join()

    async def _ask_to_stop(self, _: Node) -> None:
        self._stopping.set()

    def _run(self) -> None:
        try:
            self._broker.call(self._serve, threading.TIMEOUT_MAX)
        except Exception as error:  # noqa: BLE001 - the command reports it
            self.error = error

    async def _serve(self, node: Node) -> None:
        async with AsyncTimeline(str(node.grpc), TIMELINE) as timeline:
            await timeline.create(lease_ms=LEASE_MS)
            worker = asyncio.create_task(self._work(timeline))
            try:
                while not self._stopping.is_set() and not worker.done():
                    self.scheduled += len(await timeline.schedule([self._draw() for _ in range(PER_TICK)]))
                    await self._pause()
            finally:
                worker.cancel()
                (outcome,) = await asyncio.gather(worker, return_exceptions=True)
            if isinstance(outcome, Exception):
                raise outcome

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), TICK_S)
        except TimeoutError:
            return

    def _draw(self) -> Message:
        due = time.time() + self._random.uniform(*AHEAD_S)
        return Message(f"call customer-{self._random.randrange(500):03}".encode(), due)

    async def _work(self, timeline: AsyncTimeline) -> None:
        completions: set[asyncio.Task[None]] = set()
        try:
            async for lease in timeline.work(consumer_id="demo"):
                self._measure(lease)
                task = asyncio.create_task(lease.complete())
                completions.add(task)
                task.add_done_callback(completions.discard)
        finally:
            await asyncio.gather(*completions, return_exceptions=True)

    def _measure(self, lease: AsyncLease) -> None:
        due_ms = lease.due.timestamp() * 1_000
        self.delivered += 1
        if due_ms < self._began_ms:  # from an earlier demo on the same data: its lateness includes the time between
            return
        late_ms = round(time.time() * 1_000 - due_ms, 3)
        self.early += late_ms < 0
        self._measured_ms.append(late_ms)
