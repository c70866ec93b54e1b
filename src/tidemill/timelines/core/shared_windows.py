"""Windows on which several brokers agree without a word between them.

Each broker knows the same seats (who is registered, and since when) and has the same time. Who works in a window, and
on which buckets, follows from these two alone: no deal before it is remembered, so that a broker that came a moment ago
deals as all the others do. Hence, unlike in `windows.py`:

- who sat down in time for everybody to hear of it (`SETTLE_MS`) works from the next window on; where nobody did, all
  who are there work at once;
- when somebody is lost, the buckets of the window are dealt anew among those who are left, at once: a broker could not
  tell from the seats who had been there before;
- a new deal may move more buckets than it must.

While news is on its way two brokers may take the same bucket for theirs, or none may. The first is decided by the
lease; the second by the news, or by the backups of other racks, who take what is late by `HELP_AFTER_MS`.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from tidemill.timelines.core.buckets import BUCKETS, overlay
from tidemill.timelines.core.dealer import Deal, DealtConsumer, deal_racks, deal_ranges
from tidemill.timelines.core.timeline import DealerKind

SETTLE_MS = 500
HELP_AFTER_MS = 1_000

Ranges = tuple[tuple[int, int], ...]


class ConsumerPlace(NamedTuple):
    """A consumer that is registered, since when, and whether it is connected to this broker."""

    member: DealtConsumer
    since_ms: int
    here: bool


class SharedWindows:
    """The windows of one timeline that several brokers serve."""

    def __init__(
        self,
        window_ms: int,
        *,
        dealer: DealerKind = DealerKind.RACKS,
        buckets: int = BUCKETS,
        enrol: Callable[[DealtConsumer], None],
        withdraw: Callable[[str], None],
    ) -> None:
        self.ends_ms = 0
        self.deal: Deal | None = None
        self._window_ms = window_ms
        self._settle_ms = min(SETTLE_MS, window_ms // 2)
        self._dealer = dealer
        self._buckets = buckets
        self._enrol = enrol
        self._withdraw = withdraw
        self._seats: dict[str, ConsumerPlace] = {}
        self._next: Deal | None = None

    def join(self, member: DealtConsumer, now_ms: int) -> None:
        """A consumer is here: the others have to know before it can work."""
        self._enrol(member)
        self.turn(now_ms)

    def leave(self, consumer: str, now_ms: int) -> None:
        """A consumer that was here is gone; this broker need not wait for the news of it."""
        self._withdraw(consumer)
        if self._seats.pop(consumer, None) is not None:
            self._deal_again()
        self.turn(now_ms)

    def told(self, seats: Iterable[ConsumerPlace], now_ms: int) -> None:
        """All who are registered now."""
        self._seats = {seat.member.id: seat for seat in seats}
        self.turn(now_ms)
        self._deal_again()

    def prepare(self) -> Deal | None:
        """The deal of the next window, as far as one can know in this one."""
        self._next = self._dealt(self._working(self.ends_ms), self.deal, self._next)
        return self._next

    def turn(self, now_ms: int) -> bool:
        """Move on to the window of `now_ms`; whether the deal changed with it."""
        if now_ms < self.ends_ms:
            return False
        self.ends_ms = (now_ms // self._window_ms + 1) * self._window_ms
        before = self.deal
        self._deal_again()
        return self.deal is not before

    def others(self, consumer: str) -> bool:
        """Whether anybody else could do the work of this one."""
        return any(name != consumer for name in self._seats)

    def candidates(self, bucket: int) -> tuple[str, ...]:
        """Who may work on the bucket now: its primary, then its backups."""
        return () if self.deal is None else self.deal.candidates(bucket)

    def first_candidate(self, bucket: int) -> str | None:
        """The primary of the bucket."""
        return None if self.deal is None else self.deal.primary.owner(bucket)

    def own(self, consumers: Collection[str]) -> Ranges:
        """The buckets whose primaries are these consumers, in this window or the next one."""
        deals = [deal for deal in (self.deal, self.prepare()) if deal is not None]
        return merge((start, end) for deal in deals for start, end, owner in deal.primary.pieces if owner in consumers)

    def backed_up(self, consumers: Collection[str]) -> Ranges:
        """The buckets that these consumers back up for others in this window."""
        if self.deal is None:
            return ()
        primary = self.deal.primary.pieces
        mine = [[piece for piece in cover.pieces if piece.owner in consumers] for cover in self.deal.racks.values()]
        return merge(
            (piece.start, piece.end)
            for pieces in mine
            for piece, owner in overlay(pieces, primary)
            if owner not in consumers
        )

    def _deal_again(self) -> None:
        self.deal = self._dealt(self._working(self.ends_ms - self._window_ms), self.deal, self._next)
        self.prepare()

    def _working(self, start_ms: int) -> tuple[DealtConsumer, ...]:
        seats = sorted(self._seats.values())
        settled = tuple(seat.member for seat in seats if seat.since_ms + self._settle_ms <= start_ms)
        return settled or tuple(seat.member for seat in seats)

    def _dealt(self, members: tuple[DealtConsumer, ...], *known: Deal | None) -> Deal | None:
        """The deal among these; a known one where it is that already."""
        for deal in known:
            if deal is not None and sorted(deal.members) == list(members):
                return deal
        return (deal_ranges if self._dealer is DealerKind.RANGES else deal_racks)(members, self._buckets)


def merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same buckets in as few ranges as possible, in order."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def covers(ranges: Ranges, bucket: int) -> bool:
    """Whether the bucket is in one of the ranges."""
    return any(low <= bucket <= high for low, high in ranges)
