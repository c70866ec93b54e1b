"""The in-sync replicas of a partition as its leader sees them, and the high watermark.

The in-sync set changes only by agreement. The leader proposes, coordination compares (epoch, version) and writes, and
the leader learns the new `Term`. Until a proposal is known to be accepted or rejected, either set may be valid. So the
high watermark counts over all of them together, and any elected leader has every acknowledged record (KIP-497).

A follower's position is the offset that it fetches: everything below is flushed there. It joins the set only with
everything that may be committed. That is up to the high watermark and up to the start of this leader's epoch, because a
new leader's own watermark may be behind. It leaves the set when it has not reached the end of the log for
`replica.lag.time.max.ms`. While fewer replicas are in sync than `min.insync.replicas`, nothing is committed.
"""

from collections.abc import Callable
from typing import NamedTuple

NO_LEADER = -1
UNKNOWN = -1


class Term(NamedTuple):
    """The leader, the replicas and the in-sync set of a partition, as the cluster agreed."""

    leader: int
    epoch: int
    version: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    def newer_than(self, other: "Term") -> bool:
        """Whether this term was agreed after the other."""
        return (self.epoch, self.version) > (other.epoch, other.version)


class Lag(NamedTuple):
    """How far a follower is behind: the number of missing records, and since when it has not had everything."""

    records: int
    ms: float


class _Place:
    """The position of a follower, derived from its fetches."""

    __slots__ = ("asked_end", "asked_ms", "caught_up_ms", "offset")

    def __init__(self, now_ms: float) -> None:
        self.offset = UNKNOWN
        self.caught_up_ms = now_ms
        self.asked_ms = now_ms
        self.asked_end = UNKNOWN

    def move(self, offset: int, end_offset: int, now_ms: float) -> None:
        if offset >= end_offset:
            self.caught_up_ms = now_ms
        elif self.asked_end != UNKNOWN and offset >= self.asked_end:
            # It has everything that existed at its previous fetch. Under steady load no follower ever has everything.
            self.caught_up_ms = max(self.caught_up_ms, self.asked_ms)
        self.offset, self.asked_ms, self.asked_end = offset, now_ms, end_offset


class InSync:
    """The replicas of a partition as the leader of one epoch sees them."""

    __slots__ = ("_pending", "_places", "high_watermark", "start_offset", "term")

    def __init__(self, term: Term, start_offset: int, high_watermark: int, now_ms: float) -> None:
        self.term = term
        self.start_offset = start_offset
        self.high_watermark = high_watermark
        self._pending: frozenset[int] = frozenset()
        self._places = {node: _Place(now_ms) for node in term.replicas if node != term.leader}

    @property
    def counted(self) -> frozenset[int]:
        """Every replica that may be in the in-sync set: the agreed set and all unresolved proposals."""
        return self._pending.union(self.term.isr)

    def place_of(self, node: int) -> int:
        """Return the offset that a follower fetched last in this epoch, or -1."""
        place = self._places.get(node)
        return UNKNOWN if place is None else place.offset

    def lags(self, end_offset: int, now_ms: float) -> dict[int, Lag]:
        """Return each follower's lag behind `end_offset`. One that never fetched lacks everything since this epoch."""
        return {
            node: Lag(0, 0.0)
            if place.offset >= end_offset
            else Lag(
                end_offset - (place.offset if place.offset != UNKNOWN else self.start_offset),
                max(0.0, now_ms - place.caught_up_ms),
            )
            for node, place in self._places.items()
        }

    def enough(self, min_insync: int) -> bool:
        """Whether enough replicas are in sync for acks=all: `min_insync`, or all if there are fewer."""
        return len(self.term.isr) >= min(min_insync, len(self.term.replicas))

    def learn(self, term: Term, now_ms: float) -> bool:
        """Apply a term of the same epoch. Return False when it is outdated."""
        if term.version <= self.term.version:
            return False
        self.term = term
        self._pending = frozenset()  # a proposal for an older version was accepted just now, or never will be
        followers = [node for node in term.replicas if node != term.leader]
        self._places = {node: self._places.get(node) or _Place(now_ms) for node in followers}
        return True

    def fetched(self, node: int, offset: int, end_offset: int, now_ms: float) -> None:
        """Record that a follower fetched from `offset` on while the log ended at `end_offset`."""
        place = self._places.get(node)
        if place is not None:
            place.move(offset, end_offset, now_ms)

    def advance(self, own_offset: int, min_insync: int) -> int:
        """Advance the high watermark, when the leader has everything before `own_offset` flushed, and return it."""
        if self.enough(min_insync):
            reached = min(own_offset if node == self.term.leader else self.place_of(node) for node in self.counted)
            self.high_watermark = max(self.high_watermark, reached)
        return self.high_watermark

    def wanted(
        self, now_ms: float, lag_max_ms: float, present: Callable[[int], bool] = lambda _: True
    ) -> tuple[int, ...] | None:
        """Return the in-sync set to propose now, in replica order, or None when the agreed set is right.

        Only brokers that are present may join. A broker that just left may have fetched a moment ago, and would block
        commits until it lags.
        """
        members = tuple(
            node
            for node in self.term.replicas
            if self._belongs(node, now_ms, lag_max_ms) and (node in self.term.isr or present(node))
        )
        if set(members) == set(self.term.isr) and not self._pending:
            return None
        return members

    def propose(self, isr: tuple[int, ...]) -> None:
        """Record a proposal. Its members count until a newer term is learned."""
        self._pending = self._pending.union(isr)

    def _belongs(self, node: int, now_ms: float, lag_max_ms: float) -> bool:
        if node == self.term.leader:
            return True
        place = self._places[node]
        if now_ms - place.caught_up_ms > lag_max_ms:
            return False
        return node in self.term.isr or place.offset >= self._entry_offset()

    def _entry_offset(self) -> int:
        return max(self.high_watermark, self.start_offset)
