"""Windows on which several brokers agree without messages between them.

Each broker knows the same places (the registered consumers, and since when) and has the same time. The members of a
window, and their buckets, follow from these two alone. No earlier deal is remembered, so a broker that has just started
deals as all the others do. Hence, unlike in `windows.py`:

- a consumer that registered early enough for all brokers to see it (`SETTLE_MS`) works from the next window on; if
  there is none, all registered consumers work at once;
- when a consumer is lost, the buckets of the window are dealt again at once among the remaining ones. A broker could
  not see from the places which consumers were there before;
- a new deal may move more buckets than necessary.

While a change is in flight, two brokers may both own a bucket, or none may. The lease resolves the first case. The
second ends when the change arrives. Until then the backups in other racks take messages that are late by
`HELP_AFTER_MS`.
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
    """A registered consumer, since when, and whether it is connected to this broker."""

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
        self._places: dict[str, ConsumerPlace] = {}
        self._next: Deal | None = None

    def join(self, member: DealtConsumer, now_ms: int) -> None:
        """Register a consumer that connected here; the other brokers must see it before it can work."""
        self._enrol(member)
        self.turn(now_ms)

    def leave(self, consumer: str, now_ms: int) -> None:
        """Remove a consumer that disconnected here, without waiting for the registry to report it."""
        self._withdraw(consumer)
        if self._places.pop(consumer, None) is not None:
            self._deal_again()
        self.turn(now_ms)

    def update(self, places: Iterable[ConsumerPlace], now_ms: int) -> None:
        """Replace the places by all that are registered now."""
        self._places = {place.member.id: place for place in places}
        self.turn(now_ms)
        self._deal_again()

    def prepare(self) -> Deal | None:
        """The deal of the next window, as far as it can be known in this one."""
        self._next = self._dealt(self._working(self.ends_ms), self.deal, self._next)
        return self._next

    def turn(self, now_ms: int) -> bool:
        """Advance to the window of `now_ms`; whether the deal changed with it."""
        if now_ms < self.ends_ms:
            return False
        self.ends_ms = (now_ms // self._window_ms + 1) * self._window_ms
        before = self.deal
        self._deal_again()
        return self.deal is not before

    def others(self, consumer: str) -> bool:
        """Whether another consumer could do the work of this one."""
        return any(name != consumer for name in self._places)

    def candidates(self, bucket: int) -> tuple[str, ...]:
        """The consumers that may work on the bucket now: its primary, then its backups."""
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
        places = sorted(self._places.values())
        settled = tuple(place.member for place in places if place.since_ms + self._settle_ms <= start_ms)
        return settled or tuple(place.member for place in places)

    def _dealt(self, members: tuple[DealtConsumer, ...], *known: Deal | None) -> Deal | None:
        """The deal among these members; a known deal if it has the same members."""
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
