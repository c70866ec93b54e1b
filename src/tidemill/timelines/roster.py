"""Who gets what: the consumers of one timeline, and the ripe messages queued for each of them.

A ripe message stands in the queue of its bucket's primary consumer. A consumer with room takes from the front of its
own queue; when that is empty it helps those whose backup it is, from the far end of their queues. Messages that
nobody may take now wait in `_unowned` for the next deal. When the deal changes, everything is queued anew.

A consumer that did not move for a whole window (busy, silent, or full) is left out of the next deals until it moves
again, so that its messages do not wait behind it for ever.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from tidemill.timelines.consumer import Consumer
from tidemill.timelines.core.message import Message
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.core.windows import Windows

HELP_LOOKS_MAX = 16


class Roster:
    """The consumers of one timeline and their queues."""

    def __init__(self, settings: TimelineSettings) -> None:
        self.consumers: dict[str, Consumer] = {}
        self.queued = 0
        self.queued_bytes = 0
        self._windows = Windows(settings.window_ms, dealer=settings.dealer)
        self._window_ms = settings.window_ms
        self._queues: dict[str, deque[Message]] = {}
        self._unowned: deque[Message] = deque()

    @property
    def ends_ms(self) -> int:
        """When the window ends."""
        return self._windows.ends_ms

    def join(self, consumer: Consumer, now_ms: int) -> None:
        """A consumer is there, perhaps in the place of one with the same id."""
        self.consumers[consumer.id] = consumer
        consumer.dealt_in = True
        self._windows.join(consumer.member, now_ms)
        self._requeue()

    def leave(self, consumer: Consumer, now_ms: int) -> None:
        """A consumer is gone; what was queued for it goes to its backups."""
        if self.consumers.get(consumer.id) is consumer:
            del self.consumers[consumer.id]
            self._windows.leave(consumer.id, now_ms)
            self._requeue()

    def turn(self, now_ms: int) -> None:
        """Go on to the window of `now_ms`; leave out those who stalled, take back those who move."""
        changed = False
        for consumer in self.consumers.values():
            stalled = consumer.silent(now_ms) or now_ms - consumer.moved_ms > self._window_ms
            if stalled and consumer.dealt_in and self._others(consumer):
                consumer.dealt_in, changed = False, True
                self._windows.leave(consumer.id, now_ms)
            elif not stalled and not consumer.dealt_in:
                consumer.dealt_in, changed = True, True
                self._windows.join(consumer.member, now_ms)
        if self._windows.turn(now_ms) or changed:
            self._requeue()
        self._windows.prepare()

    def _others(self, consumer: Consumer) -> bool:
        return any(one.dealt_in and one is not consumer for one in self.consumers.values())

    def queue(self, messages: Iterable[Message]) -> None:
        """Queue ripe messages for their primaries."""
        for message in messages:
            self._place(message)
            self.queued += 1
            self.queued_bytes += message.size

    def _place(self, message: Message) -> None:
        owner = self._windows.first_candidate(message.bucket)
        if owner is None:
            self._unowned.append(message)
        elif (queue := self._queues.get(owner)) is not None:
            queue.append(message)
        else:
            self._queues[owner] = deque([message])

    def _requeue(self) -> None:
        waiting = sorted(self._drain(), key=lambda one: (one.due_ms, one.seq))
        for message in waiting:
            self._place(message)

    def _drain(self) -> list[Message]:
        waiting = [message for queue in (*self._queues.values(), self._unowned) for message in queue]
        self._queues.clear()
        self._unowned.clear()
        return waiting

    def give_up(self) -> list[Message]:
        """Take everything out of the queues."""
        waiting = self._drain()
        self.queued = self.queued_bytes = 0
        return waiting

    def take(self, now_ms: int, limit: int) -> list[tuple[Consumer, Message]]:
        """Who should lease what now, at most `limit` in all: own queues first, then help for others."""
        pairs: list[tuple[Consumer, Message]] = []
        ready = [one for one in self.consumers.values() if one.dealt_in and not one.silent(now_ms)]
        for consumer in ready:
            queue = self._queues.get(consumer.id, ())
            count = min(consumer.room(), len(queue), limit - len(pairs))
            pairs.extend((consumer, self._queues[consumer.id].popleft()) for _ in range(count))
            consumer.reserved += count
        for consumer in ready:
            helped = list(islice(self._help(consumer), min(consumer.room(), limit - len(pairs))))
            pairs.extend((consumer, message) for message in helped)
            consumer.reserved += len(helped)
        self.queued -= len(pairs)
        self.queued_bytes -= sum(message.size for _, message in pairs)
        return pairs

    def _help(self, consumer: Consumer) -> Iterator[Message]:
        for owner, queue in self._queues.items():
            while owner != consumer.id and queue:
                looks = range(len(queue) - 1, max(-1, len(queue) - 1 - HELP_LOOKS_MAX), -1)
                mine = (at for at in looks if consumer.id in self._windows.candidates(queue[at].bucket))
                found = next(mine, None)
                if found is None:
                    break
                message = queue[found]
                del queue[found]
                yield message
