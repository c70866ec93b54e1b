"""Clients of replicated timelines: one schedules, a consumer at each broker completes, and both remember what they saw.

An acknowledged message must be delivered, not before its due time, and not again after its completion was acknowledged.
A call that ends with an error may have been done. The client repeats a call to schedule whose connection broke. If the
first one counted, and the message was completed before the second one, the second one schedules it once more.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from random import Random

from tidemill import Message, Timeline
from tidemill.model.errors import TidemillError

LINE = "chaos"
PAUSE_S = 0.2
BATCH = 4
AHEAD_S = 3.0
STOP_S = 60.0


class TimerClients:
    """Producers and consumers of one timeline."""

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        self.acknowledged: dict[str, float] = {}
        """The messages that were acknowledged, with their due times."""
        self.completed: set[str] = set()
        self.completed_early: set[str] = set()
        """Messages that were completed before the call that scheduled them was answered."""
        self.in_doubt: set[str] = set()
        """Delivered messages whose completion was not answered."""
        self._problems: defaultdict[str, list[str]] = defaultdict(list)
        self._addresses = list(addresses)
        self._random = Random(seed)
        self._lock = threading.Lock()
        self._sending = threading.Event()
        self._stopping = threading.Event()
        self._producer = threading.Thread(target=self._produce, name="timers", daemon=True)
        self._consumers = [threading.Thread(target=self._work, args=(each,), daemon=True) for each in addresses]

    def start(self) -> None:
        """Create the timeline and start all clients."""
        with Timeline(",".join(self._addresses), LINE) as timeline:
            timeline.create(lease_ms=5_000, window_ms=1_000)
        for thread in (self._producer, *self._consumers):
            thread.start()

    def finish(self, within_s: float = 120.0) -> dict[str, list[str]]:
        """Stop scheduling, wait until everything is delivered, and return what went wrong, by kind."""
        self._sending.set()
        self._producer.join(STOP_S)
        until = time.monotonic() + within_s
        while time.monotonic() < until and self._left():
            time.sleep(0.2)
        self._stopping.set()
        for thread in self._consumers:
            thread.join(STOP_S)
        lost = sorted(self._left())
        if lost:
            self._problems["timers lost"] += lost
        return dict(self._problems)

    def _left(self) -> set[str]:
        with self._lock:
            return self.acknowledged.keys() - self.completed - self.completed_early - self.in_doubt

    def _produce(self) -> None:
        number = 0
        while not self._sending.is_set():
            where = self._addresses[number % len(self._addresses)]
            with suppress(TidemillError), Timeline(where, LINE, timeout_ms=5_000, connect_timeout_ms=2_000) as timeline:
                for _ in range(10):
                    due = time.time() + self._random.uniform(-0.5, AHEAD_S)
                    names = [f"t{number}-{place}" for place in range(BATCH)]
                    number += 1
                    timeline.schedule([Message(b"x", due=due, id=name) for name in names])
                    with self._lock:
                        self.acknowledged.update(dict.fromkeys(names, due))
                    if self._sending.wait(PAUSE_S):
                        return
            self._sending.wait(PAUSE_S)

    def _work(self, where: str) -> None:
        while not self._stopping.is_set():
            with suppress(TidemillError), Timeline(where, LINE, timeout_ms=5_000, connect_timeout_ms=2_000) as timeline:
                for lease in timeline.work(idle_ms=1_000):
                    self._delivered(lease.id, lease.due.timestamp())
                    lease.complete()
                    with self._lock:
                        is_known = lease.id in self.acknowledged
                        (self.completed if is_known else self.completed_early).add(lease.id)
                        self.in_doubt.discard(lease.id)
                    if self._stopping.is_set():
                        return
            self._stopping.wait(PAUSE_S)

    def _delivered(self, name: str, due: float) -> None:
        with self._lock:
            if time.time() < due:
                self._problems["timers early"].append(name)
            if name in self.completed:
                self._problems["timers delivered after their completion"].append(name)
            self.in_doubt.add(name)
