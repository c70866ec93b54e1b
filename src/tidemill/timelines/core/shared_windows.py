"""Windows on which several brokers agree without messages between them.

Each broker knows the same places (the registered consumers, and since when), the same record of an earlier deal, and
has the same time. The members of a window, and their buckets, follow from these three alone, so a broker that has just
started deals as all the others do. Unlike in `windows.py`:

- a consumer that registered early enough for all brokers to see it (`SETTLE_MS`) works from the next window on; if
  there is none, all registered consumers work at once;
- when a consumer is lost, the buckets of the window are dealt again at once among the remaining ones.

A deal starts from the recorded one and moves as few buckets as possible. Every broker that sees other members than the
recorded ones writes the new deal; the first one counts. It does not matter when the others see it, because a deal that
starts from the new record is the same as one that starts from the record before. If two brokers see different members,
they differ until both have seen the same.

While a change is in flight, two brokers may both own a bucket, or none may. The lease resolves the first case. The
second ends when the change arrives. Until then the backups in other racks take messages that are late by
`HELP_AFTER_MS`.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from tidemill.timelines.core.buckets import BUCKETS, overlay
from tidemill.timelines.core.deal_record import decode_deal, encode_deal, without_backups
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
        publish: Callable[[bytes | None], None] = lambda _record: None,
    ) -> None:
        self.ends_ms = 0
        self.deal: Deal | None = None
        self._window_ms = window_ms
        self._settle_ms = min(SETTLE_MS, window_ms // 2)
        self._dealer = dealer
        self._buckets = buckets
        self._enrol = enrol
        self._withdraw = withdraw
        self._publish = publish
        self._record: bytes | None = None
        self._recorded: Deal | None = None
        self._base: Deal | None = None
        """What the deal of the next window starts from."""
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

    def update(self, places: Iterable[ConsumerPlace], now_ms: int, record: bytes | None = None) -> None:
        """Replace the places by all that are registered now, and the record of the deal by the newest one."""
        self._places = {place.member.id: place for place in places}
        if record != self._record:
            self._record = record
            self._recorded = None if record is None else decode_deal(record, self._buckets)
            self.deal = self._next = None
        self.turn(now_ms)
        self._deal_again()

    def prepare(self) -> Deal | None:
        """The deal of the next window, as far as it can be known in this one."""
        members = self._working(self.ends_ms)
        if self._next is None or not _is_among(self._next, members):
            self._next = self.deal if _is_among(self.deal, members) else self._dealt(members, self._base)
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
        members = self._working(self.ends_ms - self._window_ms)
        if not _is_among(self.deal, members):
            self.deal = self._dealt(members, self._recorded)
            self._base, self._next = without_backups(self.deal), None
        self.prepare()
        if self._dealer is not DealerKind.RANGES:
            self._write()

    def _write(self) -> None:
        """Record the deal unless a deal among its members is recorded. Without consumers, remove the record."""
        if self.deal is None:
            if self._record is not None:
                self._publish(None)
        elif not _is_among(self._recorded, self.deal.members):
            record = encode_deal(self.deal)
            if record is not None:
                self._publish(record)

    def _working(self, start_ms: int) -> tuple[DealtConsumer, ...]:
        places = sorted(self._places.values())
        settled = tuple(place.member for place in places if place.since_ms + self._settle_ms <= start_ms)
        return settled or tuple(place.member for place in places)

    def _dealt(self, members: tuple[DealtConsumer, ...], base: Deal | None) -> Deal | None:
        if self._dealer is DealerKind.RANGES:
            return deal_ranges(members, self._buckets)
        return deal_racks(members, self._buckets, base)


def _is_among(deal: Deal | None, members: Collection[DealtConsumer]) -> bool:
    """Whether the deal is among exactly these members."""
    return deal is not None and len(deal.members) == len(members) and set(deal.members) == set(members)


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
