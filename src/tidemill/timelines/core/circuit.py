"""The circuit of one timeline: stops its pushes while most of its consumers fail, and probes until they work again.

A consumer *fails* when most of its leases end without a completion: it releases the message, or lets the lease expire.
When a service behind all consumers is down, every lease is an attempt that is wasted, and messages become dead letters
although nothing is wrong with them. So the circuit *opens*: nothing is leased. After a pause it is *half-open*: a few
messages are leased as probes, one to each of some consumers. If half of them or more are completed, it closes. If most
of them fail, the next pause is twice as long. Probes without an outcome are followed by further ones.

What must not open it:

- one bad consumer among good ones. More than half of the consumers must fail; one without outcomes counts as good;
- many consumers with little work. Most of all outcomes must be failures, too;
- a few messages that are retried again and again. Failures must be of many different messages.

Outcomes count for half a window at least, and for one and a half at most. The circuit keeps no
messages, so none is lost or early whatever it decides.
"""

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple

WINDOW_MS = 30_000
FAILED_MESSAGES_MIN = 20
"""The circuit opens when at least this many different messages failed in the window."""
OUTCOMES_MAX = 1_000
"""Of a consumer with more outcomes in a window, the older ones count less."""
CONSUMERS_MAX = 10_000
"""Consumers whose outcomes are kept. Ids are chosen by clients, so their number is limited."""
PAUSE_MS_MIN = 1_000
PAUSE_MS_MAX = 60_000
PROBES_MAX = 10


class CircuitState(Enum):
    """Whether messages are pushed."""

    CLOSED = "running"
    OPEN = "stopped"
    HALF_OPEN = "probing"


class Verdict(NamedTuple):
    """How many consumers fail, and of how many."""

    failing: int
    consumers: int


class _Outcomes:
    """The outcomes of one consumer's leases."""

    __slots__ = ("completed", "failed")

    def __init__(self, completed: int = 0, failed: int = 0) -> None:
        self.completed = completed
        self.failed = failed

    def plus(self, other: "_Outcomes | None") -> "_Outcomes":
        """Both together."""
        return self if other is None else _Outcomes(self.completed + other.completed, self.failed + other.failed)

    def is_failing(self, percent: int) -> bool:
        """Whether this part of the leases or more failed."""
        return 0 < self.failed * 100 >= percent * (self.completed + self.failed)


class _Part:
    """The outcomes of half a window."""

    __slots__ = ("failed_messages", "of")

    def __init__(self) -> None:
        self.of: dict[str, _Outcomes] = {}
        self.failed_messages: set[int] = set()


class DeliveryCircuit:
    """Decides how many messages of one timeline may be leased."""

    def __init__(self, failing_percent: int) -> None:
        self.state = CircuitState.CLOSED
        self.verdict = Verdict(0, 0)
        """Why it opened last."""
        self.retry_ms = 0
        """When the next probes may be sent, while it is not closed."""
        self.rounds = 0
        """The rounds of probes so far; each begins with another consumer."""
        self.opened = 0
        """How often it has opened, also after probes that failed."""
        self._percent = failing_percent
        self._pause_ms = 0
        self._closed_ms: int | None = None
        self._new, self._old = _Part(), _Part()
        self._part_ends_ms = 0
        self._has_failures = False
        self._probes: dict[int, int] = {}
        self._left = self._sent = self._completed = self._failed = 0

    def settled(self, consumer: str, seq: int, token: int, *, failed: bool, now_ms: int) -> None:
        """Record the outcome of a lease. This runs for every message."""
        if self._probes and self._probes.get(seq) == token:
            del self._probes[seq]
            self._failed += failed
            self._completed += not failed
        if now_ms >= self._part_ends_ms:
            self._turn(now_ms)
        outcomes = self._new.of.get(consumer)
        if outcomes is None:
            if len(self._new.of) >= CONSUMERS_MAX:
                return
            outcomes = self._new.of[consumer] = _Outcomes()
        if not failed:
            outcomes.completed += 1
        else:
            outcomes.failed += 1
            self._has_failures = True
            if len(self._new.failed_messages) < FAILED_MESSAGES_MIN:
                self._new.failed_messages.add(seq)
        if outcomes.completed + outcomes.failed > OUTCOMES_MAX:
            outcomes.completed //= 2
            outcomes.failed //= 2

    def returned(self, seq: int, token: int) -> None:
        """A lease was taken back before its consumer could use it: this says nothing about the consumer."""
        if self._probes.get(seq) == token:
            del self._probes[seq]
            self._sent -= 1
            self._left += 1

    def probed(self, seq: int, token: int) -> None:
        """A lease was granted while the circuit is half-open."""
        if self.state is CircuitState.HALF_OPEN:
            self._probes[seq] = token
            self._left -= 1
            self._sent += 1

    def allowance(self) -> int | None:
        """How many messages may be leased now; None without a limit."""
        if self.state is CircuitState.CLOSED:
            return None
        return max(0, self._left) if self.state is CircuitState.HALF_OPEN else 0

    @property
    def needs_check(self) -> bool:
        """Whether `check` may change anything."""
        return self._has_failures or self.state is not CircuitState.CLOSED

    def next_ms(self) -> int | None:
        """When `check` has something to do although nothing happens."""
        is_waiting = self.state is CircuitState.OPEN or (self.state is CircuitState.HALF_OPEN and self._left <= 0)
        return self.retry_ms if is_waiting else None

    def check(self, now_ms: int, consumers: Collection[str]) -> bool:
        """Decide from the outcomes so far; whether the state changed. `consumers`: those connected and not busy."""
        before = self.state
        if before is CircuitState.CLOSED:
            if self._has_failures:
                self._has_failures = False
                self._judge(now_ms, consumers)
        elif before is CircuitState.OPEN:
            if now_ms >= self.retry_ms:
                self._probe(now_ms, len(consumers))
        elif self._completed and self._completed * 2 >= self._sent:
            self._close(now_ms)
        elif self._failed * 2 > self._sent:
            self._open(now_ms)
        elif now_ms >= self.retry_ms and self._left <= 0:
            self._left = _probes_for(len(consumers))
            self.retry_ms = now_ms + self._pause_ms
            self.rounds += 1
        return self.state is not before

    def _judge(self, now_ms: int, consumers: Collection[str]) -> None:
        if not self._percent or now_ms >= self._part_ends_ms + WINDOW_MS // 2:
            return
        if len(self._new.failed_messages | self._old.failed_messages) < FAILED_MESSAGES_MIN:
            return
        known = {name: outcomes.plus(self._old.of.get(name)) for name, outcomes in self._new.of.items()}
        known = {**self._old.of, **known}
        total = _Outcomes(sum(one.completed for one in known.values()), sum(one.failed for one in known.values()))
        failing = sum(one.is_failing(self._percent) for one in known.values())
        count = len(known.keys() | set(consumers))
        if failing * 2 > count and total.is_failing(self._percent):
            self.verdict = Verdict(failing, count)
            is_again = self._closed_ms is not None and now_ms - self._closed_ms < WINDOW_MS
            self._pause_ms = self._pause_ms if is_again else 0
            self._open(now_ms)

    def _open(self, now_ms: int) -> None:
        self.state = CircuitState.OPEN
        self.opened += 1
        self._pause_ms = min(PAUSE_MS_MAX, max(PAUSE_MS_MIN, self._pause_ms * 2))
        self.retry_ms = now_ms + self._pause_ms
        self._probes.clear()
        self._left = 0

    def _probe(self, now_ms: int, consumers: int) -> None:
        self.state = CircuitState.HALF_OPEN
        self._left = _probes_for(consumers)
        self._sent = self._completed = self._failed = 0
        self.retry_ms = now_ms + self._pause_ms
        self.rounds += 1

    def _close(self, now_ms: int) -> None:
        self.state = CircuitState.CLOSED
        self._closed_ms = now_ms
        self._probes.clear()
        self._new, self._old = _Part(), _Part()
        self._has_failures = False

    def _turn(self, now_ms: int) -> None:
        is_next = now_ms < self._part_ends_ms + WINDOW_MS // 2
        self._old = self._new if is_next else _Part()
        self._new = _Part()
        self._part_ends_ms = now_ms + WINDOW_MS // 2


def _probes_for(consumers: int) -> int:
    return min(PROBES_MAX, max(1, consumers))
