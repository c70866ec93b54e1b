"""The live leases that this broker granted, in the order in which they end.

The store holds the truth. The dispatcher keeps this in memory to know how many messages a consumer has in flight, and
which messages to look up again when their lease ends.
"""

import heapq
from typing import NamedTuple

from tidemill.timelines.consumer import TimelineConsumer


class Held(NamedTuple):
    """A message that a consumer holds."""

    consumer: TimelineConsumer
    seq: int
    id: str
    token: int
    until_ms: int


class LeaseTable:
    """Live leases by message number."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._ends: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._held)

    def grant(self, held: Held) -> None:
        """Record that a consumer has leased the message."""
        self._held[held.seq] = held
        held.consumer.held[held.seq] = held.token
        heapq.heappush(self._ends, (held.until_ms, held.seq, held.token))

    def get(self, seq: int, token: int) -> Held | None:
        """The lease, if this token is the live one."""
        held = self._held.get(seq)
        return held if held is not None and held.token == token else None

    def extend(self, seq: int, token: int, until_ms: int) -> None:
        """Change the end of the lease."""
        held = self.get(seq, token)
        if held is not None:
            self._held[seq] = held._replace(until_ms=until_ms)
            heapq.heappush(self._ends, (until_ms, seq, token))

    def drop(self, seq: int, token: int) -> Held | None:
        """Remove a lease that is over."""
        held = self.get(seq, token)
        if held is not None:
            del self._held[seq]
            held.consumer.held.pop(seq, None)
        return held

    def next_end_ms(self) -> int | None:
        """When the next lease ends."""
        while self._ends:
            until_ms, seq, token = self._ends[0]
            held = self.get(seq, token)
            if held is not None and held.until_ms == until_ms:
                return until_ms
            heapq.heappop(self._ends)
        return None

    def expire(self, now_ms: int) -> list[Held]:
        """Remove the leases that have ended."""
        ended = []
        while (end_ms := self.next_end_ms()) is not None and end_ms <= now_ms:
            _, seq, token = heapq.heappop(self._ends)
            held = self.drop(seq, token)
            if held is not None:
                ended.append(held)
        return ended
