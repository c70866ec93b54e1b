"""Clients of replicated timelines: one schedules, moves and cancels, a consumer at each broker extends, releases and
completes, and all remember what they saw.

An acknowledged message must be delivered, not before its due time, and not again after its completion was acknowledged.
A message whose cancellation was acknowledged must not be delivered, and one that was moved not at its old due time.
A call that ends with an error may have been done. The client repeats a call to schedule whose connection broke. If the
first one counted, and the message was completed before the second one, the second one schedules it once more.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from random import Random

from tidemill import Lease, Message, Timeline
from tidemill.model.errors import TidemillError

LINE = "chaos"
PAUSE_S = 0.2
BATCH = 4
LEASE_MS = 5_000
RELEASED, EXTENDED = 0.1, 0.2
"""The parts of the leases that are released, and extended."""
AHEAD_S = 3.0
STOP_S = 60.0
LATE_S = 4.0
"""Messages that are cancelled or moved are due so much later, so that most are not delivered before."""


class TimerClients:
    """Producers and consumers of one timeline."""

    def __init__(self, addresses: Sequence[str], seed: int) -> None:
        self.acknowledged: dict[str, float] = {}
        """The messages that were acknowledged, with their due times."""
        self.completed: set[str] = set()
        self.completed_early: set[str] = set()
        """Messages that were completed before the call that scheduled them was answered."""
        self.cancelled: set[str] = set()
        self.moved: dict[str, float] = {}
        """Messages whose move was acknowledged, with their new due times."""
        self.counts: Counter[str] = Counter()
        """What was acknowledged, by kind."""
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
            timeline.create(lease_ms=LEASE_MS, window_ms=1_000)
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
            return self.acknowledged.keys() - self.completed - self.completed_early - self.in_doubt - self.cancelled

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
                    self._change_one(timeline, f"c{number}")
            self._sending.wait(PAUSE_S)

    def _change_one(self, timeline: Timeline, name: str) -> None:
        """Schedule a message, and cancel it or move it before it is due."""
        due = time.time() + LATE_S
        timeline.schedule([Message(b"x", due=due, id=name)])
        with self._lock:
            self.in_doubt.add(name)
            self.acknowledged[name] = due
        if self._random.random() < 0.5:
            timeline.cancel(name)
            with self._lock:
                self.cancelled.add(name)
                self.counts["cancelled"] += 1
        else:
            moved = time.time() + LATE_S + self._random.uniform(1.0, AHEAD_S)
            timeline.move(name, moved)
            with self._lock:
                self.acknowledged[name] = self.moved[name] = moved
                self.counts["moved"] += 1
        with self._lock:
            self.in_doubt.discard(name)

    def _work(self, where: str) -> None:
        while not self._stopping.is_set():
            with suppress(TidemillError), Timeline(where, LINE, timeout_ms=5_000, connect_timeout_ms=2_000) as timeline:
                for lease in timeline.work(idle_ms=1_000):
                    self._delivered(lease.id, lease.due.timestamp(), lease.expires.timestamp())
                    if self._settles_otherwise(lease):
                        continue
                    lease.complete()
                    with self._lock:
                        is_known = lease.id in self.acknowledged
                        (self.completed if is_known else self.completed_early).add(lease.id)
                        self.in_doubt.discard(lease.id)
                    if self._stopping.is_set():
                        return
            self._stopping.wait(PAUSE_S)

    def _settles_otherwise(self, lease: Lease) -> bool:
        """Extend some leases, and release some instead of completing them: those return."""
        drawn = self._random.random()
        if drawn < RELEASED:
            lease.release(delay_ms=200)
            with self._lock:
                self.in_doubt.discard(lease.id)
                self.counts["released"] += 1
        elif drawn < RELEASED + EXTENDED:
            lease.extend(ms=LEASE_MS)
            with self._lock:
                self.counts["extended"] += 1
        return drawn < RELEASED

    def _delivered(self, name: str, due: float, ends: float) -> None:
        with self._lock:
            if time.time() < due:
                self._problems["timers early"].append(name)
            is_live = time.time() < ends  # a delivery that a paused broker had sent may arrive later than its lease
            if is_live and name in self.cancelled:
                self._problems["timers delivered after their cancellation"].append(name)
            if is_live and name in self.moved and due < self.moved[name] - 0.001:
                self._problems["timers delivered at their due time from before a move"].append(name)
            if name in self.completed:
                self._problems["timers delivered after their completion"].append(name)
            self.in_doubt.add(name)
