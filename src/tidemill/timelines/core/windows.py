"""Windows: when the buckets of a timeline are dealt again.

Dealing at every join and leave would discard every consumer's prefetched messages each time. So time is divided into
windows, aligned to the clock so that all brokers change at the same instant, and the deal changes only with a window.
In each window the deal of the next one is prepared:

- a new consumer starts in the next window, except when no consumer is working: then there is nothing to disturb, and
  it starts at once;
- the unleased messages of a lost consumer go to its backups at once, and in the next window to the new owners of its
  buckets;
- its leased messages return when their leases end, in the window of that time.
"""

from tidemill.timelines.core.buckets import BUCKETS
from tidemill.timelines.core.dealer import Deal, DealtConsumer, deal_racks, deal_ranges
from tidemill.timelines.core.timeline import DealerKind


class Windows:
    """The windows of one timeline: its consumers, the deal of this window and the one prepared for the next."""

    def __init__(self, window_ms: int, *, dealer: DealerKind = DealerKind.RACKS, buckets: int = BUCKETS) -> None:
        self.ends_ms = 0
        self.deal: Deal | None = None
        self._window_ms = window_ms
        self._dealer = dealer
        self._buckets = buckets
        self._members: dict[str, DealtConsumer] = {}
        self._working: set[str] = set()
        self._next: Deal | None = None
        self._prepared = True

    def join(self, member: DealtConsumer, now_ms: int) -> None:
        """Add a consumer; it starts in the next window, or at once if no consumer works in this one."""
        self.turn(now_ms)
        self._members[member.id] = member
        self._prepared = False
        if not self._working:
            self._start()

    def leave(self, consumer: str, now_ms: int) -> None:
        """Remove a consumer; its backups take over now. If none is left, the waiting consumers start."""
        self.turn(now_ms)
        if self._members.pop(consumer, None) is None:
            return
        self._working.discard(consumer)
        self._prepared = False
        if not self._working:
            self._start()

    def prepare(self) -> Deal | None:
        """The deal of the next window, computed in this one."""
        if not self._prepared:
            members = list(self._members.values())
            if self._dealer is DealerKind.RANGES:
                self._next = deal_ranges(members, self._buckets)
            else:
                self._next = deal_racks(members, self._buckets, self.deal)
            self._prepared = True
        return self._next

    def turn(self, now_ms: int) -> bool:
        """Advance to the window of `now_ms`; whether the deal changed with it."""
        if now_ms < self.ends_ms:
            return False
        self.ends_ms = (now_ms // self._window_ms + 1) * self._window_ms
        before = self.deal
        self._start()
        return self.deal is not before

    def others(self, consumer: str) -> bool:
        """Whether another consumer could do the work of this one."""
        return any(name != consumer for name in self._members)

    def candidates(self, bucket: int) -> tuple[str, ...]:
        """The consumers that may work on the bucket now: its primary, then its backups, if they are connected."""
        if self.deal is None:
            return ()
        return tuple(name for name in self.deal.candidates(bucket) if name in self._working)

    def first_candidate(self, bucket: int) -> str | None:
        """The first of the candidates; called for every message, so it avoids computing the others."""
        if self.deal is None:
            return None
        primary = self.deal.primary.owner(bucket)
        return primary if primary in self._working else next(iter(self.candidates(bucket)), None)

    def _start(self) -> None:
        self.deal = self.prepare()
        self._working = set(self._members)
