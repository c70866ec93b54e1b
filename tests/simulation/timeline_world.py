"""A simulated timeline: producers, workers, crashes and clock jumps on a virtual clock, from a seed.

The world runs the real rules (`core.lease`, `core.clock`) on a plain dictionary. One heap of events replaces the event
loop, so that millions of steps take seconds. It checks while it runs:

- at most one live lease on each message, its token growing, settled only by the live token (I6);
- nothing leased before it is due by the calendar (I7), nothing leased again after it was completed or cancelled;
- at the end nothing is lost: every scheduled message was completed or cancelled, once.

Time: `world.now_ms` is the true time, which the monotonic clock shows. The wall clock differs from it by jumps. A jump
is either a mistake that is soon corrected, or a lasting correction, which moves the calendar itself. A starting broker
has only the wall clock, so the world does not start one while that clock is wrong.

A mutant replaces one rule by a wrong one. The checks must find it.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from tidemill.timelines.core.clock import StoreClock
from tidemill.timelines.core.lease import Cancel, Claim, Command, CommandOutcome, Complete, Move, Release, decide, take
from tidemill.timelines.core.message import TimedMessage

LEASE_MS = 2_000
HOLD_MS = 5_000
WORKERS = 8
POLL_MS = 20
START_MS = 1_000_000_000
DRAIN_STEPS_MAX = 2_000_000

Deciding = Callable[[TimedMessage | None, Command, int], tuple[CommandOutcome, TimedMessage | None]]
Taking = Callable[[TimedMessage | None, Claim, int], TimedMessage | None]


@dataclass(frozen=True)
class Rules:
    """The rules of a world. A mutant changes one of them."""

    decide: Deciding = decide
    take: Taking = take
    trust_the_wall: bool = False
    tail_lost: int = 0
    ahead_ms: int = 0


@dataclass
class Report:
    """The events of a run."""

    steps: int = 0
    deliveries: int = 0
    completed: int = 0
    refused: int = 0
    cancelled: int = 0
    moved: int = 0
    crashes: int = 0
    jumps: int = 0
    lateness_ms: list[int] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def late_ms(self, part: float) -> int:
        """The lateness that this share of the first deliveries stayed below."""
        ordered = sorted(self.lateness_ms)
        return ordered[int(part * (len(ordered) - 1))] if ordered else 0


class World:
    """One run from a seed."""

    def __init__(self, seed: int, rules: Rules, *, faults: bool = True) -> None:
        self.report = Report()
        self.now_ms = START_MS
        self._draw = random.Random(seed)
        self._rules = rules
        self._faults = faults
        self._skew_ms = 0
        self._calendar_ms = 0  # how far lasting corrections have moved the calendar
        self._clock = StoreClock(START_MS, START_MS, hold_ms=HOLD_MS)
        self._events: list[tuple[int, int, Callable[..., None], tuple[int, ...]]] = []
        self._order = count()
        self._numbers = count(1)
        self._store: dict[int, TimedMessage] = {}
        self._journal: list[tuple[int, TimedMessage | None]] = []  # the value that each write replaced, newest last
        self._waiting: list[tuple[int, int, int]] = []  # the dispatcher's memory: due, number, version
        self._held: dict[int, tuple[int, int]] = {}  # token and true end of each message's last lease
        self._due: dict[int, int] = {}  # scheduled messages that are not finished yet
        self._settled: set[int] = set()
        self._producing = True
        for worker in range(WORKERS):
            self._after(worker, self._work)
        self._after(0, self._produce)
        if faults:
            self._after(5_000, self._crash)
            self._after(20_000, self._jump)

    def run(self, steps: int) -> Report:
        """Run this many steps, let the workers finish the rest, and check that nothing is lost."""
        self._step_until(lambda: self.report.steps >= steps)
        self._producing = False
        limit = self.report.steps + DRAIN_STEPS_MAX
        self._step_until(lambda: not self._due or not self._store or self.report.steps >= limit)
        if self._due:
            self._wrong(f"{len(self._due)} messages lost, one of them {next(iter(self._due))}")
        return self.report

    def _step_until(self, done: Callable[[], bool]) -> None:
        events, report = self._events, self.report
        while not done() and len(report.violations) < 10:
            self.now_ms, _, act, values = heapq.heappop(events)
            report.steps += 1
            act(*values)

    def _after(self, delay_ms: float, act: Callable[..., None], *values: int) -> None:
        heapq.heappush(self._events, (self.now_ms + int(delay_ms), next(self._order), act, values))

    def _store_now(self) -> int:
        wall_ms = self.now_ms + self._skew_ms
        return wall_ms if self._rules.trust_the_wall else self._clock.now(wall_ms, self.now_ms)

    def _wrong(self, what: str) -> None:
        self.report.violations.append(f"{self.now_ms - START_MS} ms: {what}")

    def _write(self, seq: int, message: TimedMessage | None) -> None:
        self._journal.append((seq, self._store.get(seq)))
        if message is None:
            self._store.pop(seq, None)
            return
        self._store[seq] = message
        heapq.heappush(self._waiting, (message.due_ms, seq, message.version))

    def _produce(self) -> None:
        if not self._producing:
            return
        draw = self._draw
        seq = next(self._numbers)
        kind = draw.random()
        delay_ms = 0 if kind < 0.3 else draw.randrange(1_000 if kind < 0.6 else 30_000)
        due_ms = self.now_ms + self._calendar_ms + delay_ms
        self._write(seq, TimedMessage(seq, str(seq), due_ms, due_ms, 0, "", None, 0, 1, 0, 0, None))
        self._due[seq] = due_ms
        if kind > 0.95:
            self._after(draw.randrange(35_000), self._change, seq)
        self._after(draw.expovariate(0.04), self._produce)

    def _change(self, seq: int) -> None:
        """The producer cancels or moves its message, in any state."""
        cancel = self._draw.random() < 0.5
        due_ms = self.now_ms + self._calendar_ms + self._draw.randrange(10_000)
        command: Command = Cancel(str(seq)) if cancel else Move(str(seq), due_ms)
        outcome, after = self._rules.decide(self._store.get(seq), command, self._store_now())
        if outcome is not CommandOutcome.DONE:
            return
        self._write(seq, after)
        if self._held.get(seq, (0, 0))[1] > self.now_ms:
            self._wrong(f"message {seq} changed by its producer under a live lease")
        if cancel:
            self.report.cancelled += 1
            self._finished(seq)
        else:
            self.report.moved += 1
            self._due[seq] = due_ms

    def _work(self, worker: int = 0) -> None:
        now_ms = self._store_now()
        if not self._clock.drifting or self._rules.trust_the_wall:
            now_ms += self._rules.ahead_ms
            while self._waiting and self._waiting[0][0] <= now_ms:
                seen_ms, seq, version = heapq.heappop(self._waiting)
                claim = Claim(seq, version, "w", now_ms + LEASE_MS, seen_ms)
                taken = self._rules.take(self._store.get(seq), claim, now_ms)
                if taken is not None:
                    self._write(seq, taken)
                    self._delivered(taken)
                    self._serve(worker, seq, taken.token)
                    return
        self._after(POLL_MS, self._work, worker)

    def _serve(self, worker: int, seq: int, token: int) -> None:
        """Serve a message. Most work is quick, but some workers pause for longer than their lease and then continue."""
        draw = self._draw
        zombie = self._faults and draw.random() < 0.02
        self._after(draw.uniform(1_000, 6_000) if zombie else draw.expovariate(0.05), self._finish, worker, seq, token)

    def _delivered(self, message: TimedMessage) -> None:
        seq, token = message.seq, message.token
        self.report.deliveries += 1
        last_token, ends_ms = self._held.get(seq, (0, 0))
        if seq in self._settled:
            self._wrong(f"message {seq} delivered after it was finished")
        elif self.now_ms + self._calendar_ms < self._due[seq]:
            self._wrong(f"message {seq} early by {self._due[seq] - self.now_ms - self._calendar_ms} ms")
        if ends_ms > self.now_ms:
            self._wrong(f"message {seq} has two live leases")
        if token <= last_token:
            self._wrong(f"the token of message {seq} did not grow")
        if message.attempts == 1 and seq in self._due:
            self.report.lateness_ms.append(self.now_ms + self._calendar_ms - self._due[seq])
        self._held[seq] = (token, self.now_ms + LEASE_MS)

    def _finish(self, worker: int, seq: int, token: int) -> None:
        give_back = self._draw.random() < 0.03
        now_ms = self._store_now()
        command: Command = Release(seq, token, now_ms + 100) if give_back else Complete(seq, token)
        outcome, after = self._rules.decide(self._store.get(seq), command, now_ms)
        if outcome is CommandOutcome.DONE:
            self._write(seq, after)
            live_token, ends_ms = self._held[seq]
            if token != live_token or ends_ms <= self.now_ms:
                self._wrong(f"message {seq} settled by a stale holder")
            self._held[seq] = (live_token, 0)
            if not give_back:
                self.report.completed += 1
                self._finished(seq)
        else:
            self.report.refused += 1
        self._after(0, self._work, worker)

    def _finished(self, seq: int) -> None:
        if seq in self._settled:
            self._wrong(f"message {seq} finished twice")
        self._settled.add(seq)
        self._due.pop(seq, None)

    def _crash(self) -> None:
        """Crash the broker: its memory is lost, and the store keeps what is on disk. Workers do not notice."""
        self.report.crashes += 1
        for seq, before in reversed(self._journal[len(self._journal) - self._draw.randint(0, self._rules.tail_lost) :]):
            if before is None:
                self._store.pop(seq, None)
            else:
                self._store[seq] = before
        self._journal.clear()
        if not self._clock.drifting:
            self._clock = StoreClock(self._store_now(), self.now_ms, hold_ms=HOLD_MS)
        self._waiting = [(one.due_ms, one.seq, one.version) for one in self._store.values()]
        heapq.heapify(self._waiting)
        self._after(self._draw.uniform(500, 20_000), self._crash)

    def _jump(self) -> None:
        """Set the wall clock: briefly by mistake, or permanently because it was wrong."""
        self.report.jumps += 1
        by_ms = self._draw.choice([-120_000, -3_000, 3_000, 120_000])
        self._skew_ms += by_ms
        if self._draw.random() < 0.5:
            self._calendar_ms += by_ms
            self._after(self._draw.uniform(30_000, 200_000), self._jump)
        else:
            self._after(self._draw.uniform(10, HOLD_MS - 1_000), self._put_right, by_ms)

    def _put_right(self, by_ms: int) -> None:
        self._skew_ms -= by_ms
        self._after(self._draw.uniform(30_000, 200_000), self._jump)
