"""Bugs planted in the replication rules, one at a time. The simulation must find each of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tests.simulation.replica_world import Elect

from tidemill.cluster.core.image import PartitionInfo
from tidemill.streams.core.follower import Question
from tidemill.streams.core.insync import InSync, Term
from tidemill.streams.partition.follower import PartitionFollower
from tidemill.streams.partition.leader import PartitionLeader
from tidemill.streams.partition.replica import ReplicaState


def unclean(info: PartitionInfo, live: frozenset[int]) -> PartitionInfo | None:
    """B2: any live broker may lead, in sync or not."""
    if info.leader in live or not live:
        return None
    leader = max(live)
    isr = tuple(sorted({leader, *info.isr} & live))
    return PartitionInfo(info.index, leader, info.replicas, isr, info.leader_epoch + 1, info.version + 1)


@contextmanager
def ack_before_flush() -> Iterator[None]:
    """B1: written data counts as safe before the flush, on the leader and on followers."""

    async def ask(self: Any) -> Question | None:
        term, replica = self._followed(), self._replica
        last = replica.leader.epochs.last
        return None if term is None else Question(term.leader, term.epoch, replica.log.end_offset, last)

    async def commit(self: Any, leading: Any, placed: Any, timeout_s: float | None) -> None:
        await leading.committed(placed.next_offset, timeout_s)

    with (
        patch.object(PartitionFollower, "ask", ask),
        patch.object(PartitionLeader, "_commit", commit),
        patch.object(ReplicaState, "own_offset", lambda self: self.log.end_offset),
    ):
        yield


@contextmanager
def cut_to_watermark() -> Iterator[None]:
    """B3: a follower truncates to its high watermark without comparing epochs."""
    follow = PartitionFollower.follow

    async def cutting(self: Any, term: Term) -> None:
        known = self._replica.term
        await follow(self, term)
        if known is None or known.epoch != term.epoch:
            await self.truncate(self._replica.high_watermark)

    with (
        patch.object(PartitionFollower, "follow", cutting),
        patch("tidemill.streams.partition.leader.compare", lambda *_: None),
    ):
        yield


@contextmanager
def minimal_set() -> Iterator[None]:
    """B5: the high watermark counts only the agreed set, while a larger one may have been agreed."""
    with patch.object(InSync, "counted", property(lambda self: frozenset(self.term.isr))):
        yield


@contextmanager
def shrink_at_once() -> Iterator[None]:
    """B5, the other way: a proposed removal counts at once, though the replica may still be elected."""
    propose = InSync.propose

    def proposing(self: InSync, isr: tuple[int, ...]) -> None:
        propose(self, isr)
        self.term = self.term._replace(isr=isr)

    with patch.object(InSync, "propose", proposing):
        yield


@contextmanager
def stale_entry() -> Iterator[None]:
    """B6: a follower rejoins at the new leader's own, stale watermark."""
    with patch.object(InSync, "_entry_offset", lambda self: self.high_watermark):
        yield


@contextmanager
def lost_proposal() -> Iterator[None]:
    """B7: a proposal is made only once, even if its response is lost."""
    wanted = InSync.wanted

    def once(self: InSync, *args: Any) -> tuple[int, ...] | None:
        return None if self._pending else wanted(self, *args)

    with patch.object(InSync, "wanted", once):
        yield


@contextmanager
def nothing() -> Iterator[None]:
    """No bug: for mutants that only change the election."""
    yield


Mutant = tuple[Callable[[], Any], Elect | None]
MUTANTS: dict[str, Mutant] = {
    "ack before flush": (ack_before_flush, None),
    "unclean election": (nothing, unclean),
    "cut to watermark": (cut_to_watermark, None),
    "minimal in-sync set": (minimal_set, None),
    "shrink before it is agreed": (shrink_at_once, None),
    "entry at a stale watermark": (stale_entry, None),
    "lost proposal": (lost_proposal, None),
}
