"""Keeps the prefetch of one timeline filled from the store.

Messages enter the prefetch in three ways:

- the *fill* reads on from the frontier, up to `HORIZON_MS` ahead, while there is space for a whole read. A smaller
  space is not worth a call to the store, because there is enough in memory then;
- a *note* looks a message up by its id shortly before it may be needed: it was moved, released, or its lease ended;
- a new message that is due before the frontier is added by the call that scheduled it (`add_new`), without a read.

When several brokers serve the timeline, only the messages of its own buckets (`deal`) are fetched here, and each rescan
looks for late messages in the buckets that are backed up here.

A *rescan* starts the fill at the beginning again. It finds what other brokers wrote into a shared store, and the effect
of calls whose answer was lost. While a fill runs, everything up to the horizon counts as covered: a message that is
scheduled meanwhile is added directly, whether the fill saw it or not.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable, Sequence

import structlog

from tidemill.model.timeline_errors import TimelineError
from tidemill.timelines.clock import Clock
from tidemill.timelines.core.message import (
    FIND_BYTES_MAX,
    MessageStatus,
    NewMessage,
    Scheduled,
    Selection,
    TimedMessage,
    TimelinePosition,
)
from tidemill.timelines.core.shared_windows import HELP_AFTER_MS, Ranges, covers
from tidemill.timelines.health import HealthMonitor
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.prefetch import Prefetch
from tidemill.timelines.wakeup import Wakeup

HORIZON_MS = 5_000
FILL_MESSAGES_MAX = 2_000
"""A store reads the upper pages of its indexes once per call, however many messages the call finds."""
TAKE_IN_MAX = 500
"""The most messages that are added at a time; then the event loop runs other tasks."""
NOTES_MAX = 50_000
NOTE_AHEAD_MS = 100
RESCAN_MS = 60_000
"""Only this broker writes to its store, and a caller that does not know how a write ended requests a rescan. This one
is a safety net. It reads messages again that are in memory already, so it is rare.
"""
SHARED_RESCAN_MS = 250
HELP_MESSAGES_MAX = 100
"""The most late messages of other brokers that are fetched at a time: they may be about to be delivered there."""
RETRY_MS = 500
_LAST_SEQ = 2**63 - 1

log = structlog.get_logger(__name__)


class Prefetcher:
    """Brings the messages of one timeline from the store into memory."""

    def __init__(
        self,
        name: str,
        store: TimelineStore,
        clock: Clock,
        guard: HealthMonitor,
        prefetch: Prefetch,
        *,
        shared: bool,
        skip: Callable[[TimedMessage], bool],
        fed: Callable[[], None],
    ) -> None:
        self.wants_bodies = False
        """Whether there are consumers; without them only the numbers of attempts matter."""
        self.wanted = False
        self._name = name
        self._store = store
        self._clock = clock
        self._guard = guard
        self._prefetch = prefetch
        self._rescan_ms = SHARED_RESCAN_MS if shared else RESCAN_MS
        self._skip = skip
        self._fed = fed
        self._own: Ranges | None = None
        self._backed_up: Ranges = ()
        self._wakeup = Wakeup()
        self._notes: list[tuple[int, str]] = []
        self._filling_ms: int | None = None
        self._more = True
        self._lacked_space = False
        self._rescan_at_ms = 0

    def add_new(self, new: Sequence[NewMessage], scheduled: Sequence[Scheduled]) -> None:
        """Add those scheduled messages that no fill would find."""
        if not self.wanted:
            return
        for message, kept in zip(new, scheduled, strict=True):
            if not self._covers(kept.due_ms) or not self._is_own(message.bucket):
                continue
            if kept.duplicate:
                self.note(kept.id, kept.due_ms)
            else:
                self._prefetch.add(_as_kept(message, kept))
        self._fed()

    def note(self, message_id: str, at_ms: int) -> None:
        """Look the message up again when it may be needed, unless a fill will find it."""
        if not self.wanted or not self._covers(at_ms):
            return
        if len(self._notes) >= NOTES_MAX:
            self.rescan()
            return
        heapq.heappush(self._notes, (at_ms, message_id))
        self._wakeup.notify()

    def rescan(self) -> None:
        """Start the fill at the beginning again."""
        self._rescan_at_ms = 0
        self._wakeup.notify()

    def deal(self, own: Ranges | None, backed_up: Ranges) -> None:
        """Fetch the messages of these buckets, None for all; and the late ones of the backed-up buckets."""
        self._backed_up = backed_up
        if own != self._own:
            self._own = own
            self._prefetch.generation += 1  # a running fill has read other buckets
            self.rescan()

    def _is_own(self, bucket: int) -> bool:
        return self._own is None or covers(self._own, bucket)

    def start_over(self) -> None:
        """Drop everything and fill again."""
        self._prefetch.clear()
        self._notes.clear()
        self.rescan()

    def taken_out(self) -> None:
        """Messages were taken out, so a fill that waits for space may continue."""
        if self._lacked_space:
            self._wakeup.notify()

    async def run(self) -> None:
        """Fill and look up, without end; each start reads everything, since a failed run may have lost notes."""
        failing = False
        self._rescan_at_ms = 0
        while True:
            try:
                await self._look_up()
                await self._fill()
            except TimelineError as error:
                if not failing:
                    log.warning("timeline_prefetch_failed", timeline=self._name, error=str(error))
                failing = True
                self._rescan_at_ms = 0
                await asyncio.sleep(RETRY_MS / 1_000)
                continue
            failing = False
            await self._wakeup.wait(self._pause_s())

    def _covers(self, due_ms: int) -> bool:
        return self._prefetch.covers(due_ms) or (self._filling_ms is not None and due_ms <= self._filling_ms)

    async def _look_up(self) -> None:
        soon_ms = self._clock.now_ms() + NOTE_AHEAD_MS
        while self.wanted and self._notes and self._notes[0][0] <= soon_ms:
            ids: dict[str, None] = {}
            while self._notes and self._notes[0][0] <= soon_ms and len(ids) < FILL_MESSAGES_MAX:
                ids[heapq.heappop(self._notes)[1]] = None
            while ids and (found := await self._find(Selection(ids=tuple(ids)), len(ids), None)):
                self._take_in(
                    message for message in found if self._is_own(message.bucket) and self._covers(message.due_ms)
                )
                for message in found:
                    del ids[message.id]

    async def _fill(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms >= self._rescan_at_ms:
            self._prefetch.frontier = None
            self._rescan_at_ms = now_ms + self._rescan_ms
            await self._help(now_ms)
        while self.wanted and self._has_space() and self._behind(self._clock.now_ms()):
            await self._fill_once(self._clock.now_ms() + HORIZON_MS)

    async def _help(self, now_ms: int) -> None:
        limit = min(HELP_MESSAGES_MAX, self._prefetch.free_messages())
        if not self._backed_up or not self.wants_bodies or limit <= 0:
            return
        late = Selection(end_ms=now_ms - HELP_AFTER_MS, status=MessageStatus.AVAILABLE, buckets=self._backed_up)
        self._take_in(await self._find(late, limit, None))

    def _has_space(self) -> bool:
        return self._prefetch.free_messages() >= FILL_MESSAGES_MAX

    def _behind(self, now_ms: int) -> bool:
        frontier = self._prefetch.frontier
        return frontier is None or self._more or frontier.due_ms < now_ms + HORIZON_MS // 2

    async def _fill_once(self, end_ms: int) -> None:
        selection, generation = Selection(end_ms=end_ms, buckets=self._own), self._prefetch.generation
        after = self._prefetch.frontier
        self._filling_ms = end_ms
        try:
            limit = await self._fitting(selection, after)
            found = await self._find(selection, limit, after)
        finally:
            self._filling_ms = None
        # A result that is short because of its bodies is not the end.
        self._more = len(found) >= limit or (self.wants_bodies and bool(found))
        if self._prefetch.generation == generation:
            self._prefetch.frontier = (
                TimelinePosition(found[-1].due_ms, found[-1].seq)
                if self._more
                else TimelinePosition(end_ms - 1, _LAST_SEQ)
            )
        for first in range(0, len(found), TAKE_IN_MAX):
            self._take_in(found[first : first + TAKE_IN_MAX])
            await asyncio.sleep(0)

    async def _fitting(self, selection: Selection, after: TimelinePosition | None) -> int:
        """How many messages to fetch: as many as fit into memory with their bodies, at least one."""
        limit = max(1, min(FILL_MESSAGES_MAX, self._prefetch.free_messages()))
        left = self._prefetch.free_bytes()
        if not self.wants_bodies or left >= FIND_BYTES_MAX:
            return limit
        now_ms = self._clock.now_ms()
        heads = await self._guard.ask_store(
            lambda: self._store.find(self._name, selection, now_ms=now_ms, limit=limit, after=after), reads=True
        )
        for index, head in enumerate(heads):
            left -= head.size
            if left < 0:
                return max(1, index)
        return limit

    async def _find(self, selection: Selection, limit: int, after: TimelinePosition | None) -> list[TimedMessage]:
        now_ms, bodies = self._clock.now_ms(), self.wants_bodies
        return await self._guard.ask_store(
            lambda: self._store.find(self._name, selection, now_ms=now_ms, limit=limit, after=after, bodies=bodies),
            reads=True,
        )

    def _take_in(self, found: Iterable[TimedMessage]) -> None:
        for message in found:
            if not self._skip(message) and (message.body is not None or not self.wants_bodies):
                self._prefetch.add(message)
        self._fed()

    def _pause_s(self) -> float | None:
        if not self.wanted:
            return None
        times = [self._rescan_at_ms] if self.wants_bodies else []
        if self._notes:
            times.append(self._notes[0][0] - NOTE_AHEAD_MS)
        frontier = self._prefetch.frontier
        self._lacked_space = not self._has_space()  # if so, only `taken_out` wakes the fill again
        if frontier is not None and not self._more and not self._lacked_space:
            times.append(frontier.due_ms - HORIZON_MS // 2)
        return max(0.001, self._clock.delay_s(min(times))) if times else None


def _as_kept(new: NewMessage, kept: Scheduled) -> TimedMessage:
    """A new message as the store keeps it, without a call to the store."""
    return TimedMessage(
        seq=kept.seq,
        id=kept.id,
        due_ms=kept.due_ms,
        scheduled_ms=kept.due_ms,
        bucket=new.bucket,
        group=new.group,
        holder=None,
        token=0,
        version=kept.version,
        attempts=0,
        size=len(new.body),
        key=new.key,
        body=new.body,
        recurrence=new.recurrence,
    )
