"""An event loop whose clock jumps instead of waiting, and a network that loses, delays and cuts messages.

One seed gives one history: every choice comes from the given random source, and no thread is started.
"""

import asyncio
from asyncio import base_events
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

LATE_S_MAX = 5.0


class VirtualLoop(base_events.BaseEventLoop):
    """Runs unmodified asyncio code. A virtual second costs only the work that happens in it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self._selector = self
        self._clock_resolution = 1e-9

    def select(self, timeout: float | None) -> list[object]:
        """Jump to the next timer instead of waiting. With no timer, the world has stopped."""
        if timeout is None:
            raise RuntimeError("nothing will ever happen again")
        self.now += timeout
        self.steps += 1
        return []

    def time(self) -> float:
        """Seconds since the start of this world."""
        return self.now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Run the function at once: there are no threads here."""
        raise RuntimeError("threads are not deterministic")

    def _process_events(self, event_list: Any = None) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class Endpoint:
    """A node as the network sees it."""

    def __init__(self, name: object) -> None:
        self.name = name
        self.alive = True
        self.incarnation = 0
        self.frozen_until = 0.0


class Network:
    """Messages between nodes: lost, late, reordered, cut one way or both, and held while a node is frozen."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.cut: set[tuple[object, object]] = set()
        self.loss = 0.01
        self.late = 0.01
        self.delay_rate = 500.0
        self.messages = 0
        self._nodes: dict[object, Endpoint] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def join(self, node: Endpoint) -> None:
        """Add a node."""
        self._nodes[node.name] = node

    def send(self, source: object, target: object, deliver: Callable[[], None]) -> None:
        """Maybe run `deliver` at the target, some time later."""
        self.messages += 1
        if (source, target) in self.cut or self.random.random() < self.loss:
            return
        delay = self.random.expovariate(self.delay_rate)
        if self.random.random() < self.late:
            delay += self.random.uniform(0, LATE_S_MAX)
        held = max(0.0, self._frozen_until(source) - self.loop.now)
        self.loop.call_later(held + delay, self._arrive, target, self._incarnation(target), deliver)

    async def ask(self, source: object, target: object, work: Callable[[], Awaitable[Any]], timeout_s: float) -> Any:
        """The result of `work` at the target. Raises TimeoutError when the request or the response is lost."""
        waiter: asyncio.Future[Any] = self.loop.create_future()

        async def run() -> None:
            try:
                found: Any = await work()
            except Exception as error:  # noqa: BLE001 - errors are sent back, too
                found = error
            self.send(target, source, lambda: None if waiter.done() else waiter.set_result(found))

        self.send(source, target, lambda: self._spawn(run()))
        async with asyncio.timeout(timeout_s):
            found = await waiter
        if isinstance(found, Exception):
            raise found
        return found

    def _spawn(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _arrive(self, target: object, incarnation: int, deliver: Callable[[], None]) -> None:
        node = self._nodes.get(target)
        if node is None:
            deliver()
        elif self.loop.now < node.frozen_until:
            self.loop.call_at(node.frozen_until, self._arrive, target, incarnation, deliver)
        elif node.alive and node.incarnation == incarnation:
            deliver()

    def _incarnation(self, name: object) -> int:
        node = self._nodes.get(name)
        return 0 if node is None else node.incarnation

    def _frozen_until(self, name: object) -> float:
        node = self._nodes.get(name)
        return 0.0 if node is None else node.frozen_until
