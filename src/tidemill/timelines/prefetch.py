"""The messages that become due soon, in memory, bounded by count and bytes.

`frontier` is the position up to which everything in the store is known here. A message that is due before it is in
`_known`, under a lease that the delivery tracks, or on the delivery's list to be looked up again. So a message that is
scheduled before the frontier must be added at once; one after it is left for the next fill. When more is added than may
be kept, the latest messages are dropped and the frontier is moved back.

A message is ripe `early_ms` before it is due, so that its lease is written when it is due. A message that was leased
before is ripe when that lease or its pause has ended, and not earlier.

A fill returns messages in their order, so they are appended to a queue. Only messages that arrive out of order go to a
heap. A message may have two entries at a time (it was moved): only the one that `_known` points to counts.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator

from tidemill.timelines.core.message import TimedMessage, TimelinePosition

PREFETCH_MESSAGES_MAX = 20_000
PREFETCH_BYTES_MAX = 64 * 1024 * 1024
OVERSHOOT = 2

_Entry = tuple[int, int, int]
"""When it is ripe, and the number and version of the message."""


class Prefetch:
    """Messages by the time at which they are ripe."""

    def __init__(
        self,
        *,
        early_ms: int,
        gather_ms: int = 0,
        messages_max: int = PREFETCH_MESSAGES_MAX,
        bytes_max: int = PREFETCH_BYTES_MAX,
    ) -> None:
        self.frontier: TimelinePosition | None = None
        self.size_bytes = 0
        self.generation = 0
        """Grows whenever messages before the frontier were dropped: a running fill must not move the frontier then."""
        self._early_ms = early_ms
        self._gather_ms = gather_ms
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._known: dict[int, TimedMessage] = {}
        self._queue: deque[_Entry] = deque()
        self._heap: list[_Entry] = []

    def __len__(self) -> int:
        return len(self._known)

    def free_messages(self) -> int:
        """How many more messages may be fetched."""
        return 0 if self.size_bytes >= self._bytes_max else max(0, self._messages_max - len(self._known))

    def free_bytes(self) -> int:
        """How many more bytes may be fetched."""
        return max(0, self._bytes_max - self.size_bytes)

    def covers(self, due_ms: int) -> bool:
        """Whether a message due then would never be fetched, because the frontier is past it."""
        return self.frontier is not None and due_ms <= self.frontier.due_ms

    def add(self, message: TimedMessage) -> None:
        """Add the message, replacing an older state of it."""
        seq, version = message.seq, message.version
        known = self._known.get(seq)
        if known is not None:
            if known.version >= version:
                return
            self.size_bytes -= known.size
        self._known[seq] = message
        self.size_bytes += message.size
        entry = (self._ripe_ms(message), seq, version)
        if not self._queue or entry > self._queue[-1]:
            self._queue.append(entry)
        else:
            heapq.heappush(self._heap, entry)
        if len(self._known) > OVERSHOOT * self._messages_max or self.size_bytes > OVERSHOOT * self._bytes_max:
            self._draw_back()

    def forget(self, seq: int) -> None:
        """Drop the message, because it is handled elsewhere now."""
        known = self._known.pop(seq, None)
        if known is not None:
            self.size_bytes -= known.size

    def pop_ripe(self, now_ms: int, limit: int) -> Iterator[TimedMessage]:
        """Take out up to `limit` messages that are ripe at `now_ms`, in their order."""
        taken = 0
        while taken < limit:
            queue = self._first_in()
            if not queue or queue[0][0] > now_ms:
                return
            _, seq, version = self._leave(queue)
            message = self._known.get(seq)
            if message is not None and message.version == version:
                del self._known[seq]
                self.size_bytes -= message.size
                taken += 1
                yield message

    def wake_ms(self) -> int | None:
        """When to take out ripe messages next; None when there are none.

        A message that is ripe early waits a while for others, so that many are leased in one write.
        """
        while queue := self._first_in():
            ripe_ms, seq, version = queue[0]
            message = self._known.get(seq)
            if message is not None and message.version == version:
                return ripe_ms if message.attempts else ripe_ms + self._gather_ms
            self._leave(queue)
        return None

    def clear(self) -> None:
        """Drop everything: the next fill starts at the beginning."""
        self._known.clear()
        self._queue.clear()
        self._heap.clear()
        self.size_bytes = 0
        self.generation += 1
        self.frontier = None

    def _first_in(self) -> "deque[_Entry] | list[_Entry]":
        """The queue or the heap that has the first entry; an empty one when both are empty."""
        queue, heap = self._queue, self._heap
        return heap if heap and not (queue and queue[0] < heap[0]) else queue

    def _leave(self, queue: "deque[_Entry] | list[_Entry]") -> _Entry:
        return self._queue.popleft() if queue is self._queue else heapq.heappop(self._heap)

    def _ripe_ms(self, message: TimedMessage) -> int:
        return message.due_ms if message.attempts else message.due_ms - self._early_ms

    def _draw_back(self) -> None:
        ordered = sorted(self._known.values(), key=lambda one: (one.due_ms, one.seq))
        keep = self._fitting(ordered)
        if keep >= len(ordered):
            return
        first_dropped = ordered[keep]
        self._known = {one.seq: one for one in ordered[:keep]}
        self._queue = deque(sorted((self._ripe_ms(one), one.seq, one.version) for one in ordered[:keep]))
        self._heap = []
        self.size_bytes = sum(one.size for one in ordered[:keep])
        self.generation += 1
        place = TimelinePosition(first_dropped.due_ms, first_dropped.seq - 1)
        self.frontier = min(self.frontier, place) if self.frontier else place

    def _fitting(self, ordered: Iterable[TimedMessage]) -> int:
        """How many of the messages, from the first on, are within the limits; at least one."""
        size_bytes = 0
        for index, message in enumerate(ordered):
            size_bytes += message.size
            if index >= self._messages_max or (size_bytes > self._bytes_max and index > 0):
                return index
        return 1
