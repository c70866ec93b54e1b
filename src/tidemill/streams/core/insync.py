"""Who is in sync with the leader of a partition, and up to where its records are committed.

The in-sync set changes only by agreement: the leader proposes, coordination compares (epoch, version) and writes, and
the new `Term` is learned. Until a proposal is known to have been taken or refused, both sets may be the true one: the
high watermark counts over all of them together, so that whoever is elected has what was acknowledged (KIP-497).

A follower's place is the offset that it asks for: everything before is flushed there. It comes (back) into the set
only with all that may be committed: up to the high watermark and up to where this leader's epoch began, since a new
leader's own watermark may still be behind. It leaves the set when it has not had the end of the log for
`replica.lag.time.max.ms`. While fewer replicas are in sync than `min.insync.replicas` nothing becomes committed.
"""

from collections.abc import Callable
from typing import NamedTuple

NOBODY = -1
UNKNOWN = -1


class Term(NamedTuple):
    """Who leads a partition, who copies it and who is in sync, as the cluster agreed."""

    leader: int
    epoch: int
    version: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    def newer_than(self, other: "Term") -> bool:
        """Whether this was agreed after the other."""
        return (self.epoch, self.version) > (other.epoch, other.version)


class Lag(NamedTuple):
    """How far a follower is behind: records that it has not asked behind, and since when it has not had everything."""

    records: int
    ms: float


class _Place:
    """How far a follower has come, by what it asked for."""

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
            # It has all that there was when it last asked: under steady load nobody ever has everything.
            self.caught_up_ms = max(self.caught_up_ms, self.asked_ms)
        self.offset, self.asked_ms, self.asked_end = offset, now_ms, end_offset


class InSync:
    """The replicas of a partition as its leader of one epoch sees them."""

    __slots__ = ("_pending", "_places", "high_watermark", "start_offset", "term")

    def __init__(self, term: Term, start_offset: int, high_watermark: int, now_ms: float) -> None:
        self.term = term
        self.start_offset = start_offset
        self.high_watermark = high_watermark
        self._pending: frozenset[int] = frozenset()
        self._places = {node: _Place(now_ms) for node in term.replicas if node != term.leader}

    @property
    def counted(self) -> frozenset[int]:
        """Everyone who may be in the in-sync set: the agreed one and all proposals that are not resolved."""
        return self._pending.union(self.term.isr)

    def place_of(self, node: int) -> int:
        """The offset that a follower asked for last in this epoch, or -1."""
        place = self._places.get(node)
        return UNKNOWN if place is None else place.offset

    def lags(self, end_offset: int, now_ms: float) -> dict[int, Lag]:
        """How far every follower is behind a log that ends there; one that never asked lacks all since this epoch."""
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
        """Whether as many replicas are in sync as acks=all asks for, or as there are."""
        return len(self.term.isr) >= min(min_insync, len(self.term.replicas))

    def learn(self, term: Term, now_ms: float) -> bool:
        """Take over what was agreed in the same epoch; False when it is old news."""
        if term.version <= self.term.version:
            return False
        self.term = term
        self._pending = frozenset()  # a proposal for an older version was taken just now, or never will be
        followers = [node for node in term.replicas if node != term.leader]
        self._places = {node: self._places.get(node) or _Place(now_ms) for node in followers}
        return True

    def fetched(self, node: int, offset: int, end_offset: int, now_ms: float) -> None:
        """A follower asked for records from `offset` on while the log ended at `end_offset`."""
        place = self._places.get(node)
        if place is not None:
            place.move(offset, end_offset, now_ms)

    def advance(self, own_offset: int, min_insync: int) -> int:
        """The high watermark when the leader itself has everything before `own_offset` for good."""
        if self.enough(min_insync):
            reached = min(own_offset if node == self.term.leader else self.place_of(node) for node in self.counted)
            self.high_watermark = max(self.high_watermark, reached)
        return self.high_watermark

    def wanted(
        self, now_ms: float, lag_max_ms: float, present: Callable[[int], bool] = lambda _: True
    ) -> tuple[int, ...] | None:
        """The in-sync set to propose now, in the order of the replicas; None when the agreed one is right.

        Only who is present comes in: one that has left asked a moment ago, and would hold up everything until it lags.
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
        """A proposal leaves; its members count until a newer term is learned."""
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
