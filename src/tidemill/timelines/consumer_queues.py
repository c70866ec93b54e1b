"""The consumers of one timeline, and a queue of ripe messages for each of them.

A ripe message is in the queue of its bucket's primary consumer. A consumer with capacity takes from its own queue, in
the order that it asked for (`core/message_queue.py`). When that is empty, it helps the consumers that it backs up, from
the far end of their queues, and takes what busy consumers have in theirs. Messages that no consumer may take now wait
in `_unowned` for the next deal. When the deal changes, everything is queued again.

When several brokers serve the timeline, only buckets of consumers that are connected here are queued here. A message of
another broker's consumer is released, unless it is late by `HELP_AFTER_MS` and one of ours backs its bucket up.

A consumer that is busy when a window begins, or made no progress for a whole window (silent, or full), is excluded
from the deals until it makes progress again. Otherwise its messages would wait for it without end.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from tidemill.timelines.consumer import TimelineConsumer
from tidemill.timelines.core.buckets import BUCKETS
from tidemill.timelines.core.message import TimedMessage
from tidemill.timelines.core.message_queue import Draw, LeaseOrder, MessageQueue, new_queue
from tidemill.timelines.core.shared_windows import HELP_AFTER_MS, ConsumerPlace, Ranges, SharedWindows
from tidemill.timelines.core.timeline import TimelineSettings
from tidemill.timelines.core.windows import Windows
from tidemill.timelines.interface import SharedConsumers

HELP_LOOKS_MAX = 16
QUEUED_MAX = 10_000
"""No queue has more messages: see `QUEUED_MESSAGES_MAX` of the delivery."""


class ConsumerQueues:
    """The consumers of one timeline and their queues."""

    def __init__(self, name: str, settings: TimelineSettings, registry: SharedConsumers | None, draw: Draw) -> None:
        self.consumers: dict[str, TimelineConsumer] = {}
        self.queued = 0
        self.queued_bytes = 0
        self._agreed = None if registry is None else _shared_windows(name, settings, registry)
        self._windows = self._agreed or Windows(settings.window_ms, dealer=settings.dealer)
        self._window_ms = settings.window_ms
        self._draw = draw
        self._queues: dict[str, MessageQueue] = {}
        self._unowned: deque[TimedMessage] = deque()
        self._foreign: list[TimedMessage] = []

    @property
    def ends_ms(self) -> int:
        """When the window ends."""
        return self._windows.ends_ms

    def join(self, consumer: TimelineConsumer, now_ms: int) -> None:
        """Add a consumer; it may replace one with the same id."""
        self.consumers[consumer.id] = consumer
        consumer.dealt_in = True
        self._windows.join(consumer.member, now_ms)
        self._requeue(now_ms)

    def leave(self, consumer: TimelineConsumer, now_ms: int) -> None:
        """Remove a consumer; the messages in its queue go to its backups."""
        if self.consumers.get(consumer.id) is consumer:
            del self.consumers[consumer.id]
            self._windows.leave(consumer.id, now_ms)
            self._requeue(now_ms)

    def update(self, places: Iterable[ConsumerPlace], record: bytes | None, now_ms: int) -> None:
        """Replace the registered consumers of all brokers, and the record of the deal."""
        if self._agreed is not None:
            self._agreed.update(places, now_ms, record)
            self._requeue(now_ms)

    def own(self) -> Ranges | None:
        """The buckets that this broker works on; None for all of them."""
        return None if self._agreed is None or not self.consumers else self._agreed.own(self.consumers)

    def backed_up(self) -> Ranges:
        """The buckets of other brokers from which consumers here take late messages."""
        return () if self._agreed is None else self._agreed.backed_up(self.consumers)

    def shares(self) -> dict[str, float]:
        """The part of the buckets that each consumer has in this window."""
        deal = self._windows.deal
        return {} if deal is None else {name: size / BUCKETS for name, size in deal.primary.shares().items()}

    def let_go(self) -> list[TimedMessage]:
        """Take the messages that were queued here and now belong to another broker."""
        foreign, self._foreign = self._foreign, []
        return foreign

    def turn(self, now_ms: int) -> None:
        """Advance to the window of `now_ms`; exclude stalled consumers, and include those that make progress again."""
        changed = False
        before_ms = min(now_ms, self.ends_ms - 1)  # in the window that ends, so that it counts in the one that begins
        for consumer in self.consumers.values():
            is_idle = now_ms - consumer.moved_ms > self._window_ms
            stalled = consumer.busy or consumer.silent(now_ms) or is_idle
            if stalled and consumer.dealt_in and self._windows.others(consumer.id):
                consumer.dealt_in, changed = False, True
                self._windows.leave(consumer.id, before_ms)
            elif not stalled and not consumer.dealt_in:
                consumer.dealt_in, changed = True, True
                self._windows.join(consumer.member, before_ms)
        if self._windows.turn(now_ms) or changed:
            self._requeue(now_ms)
        self._windows.prepare()

    def queue(self, messages: Iterable[TimedMessage], now_ms: int) -> None:
        """Queue ripe messages for their primaries."""
        for message in messages:
            self.queued += 1
            self.queued_bytes += message.size
            self._place(message, now_ms)

    def _place(self, message: TimedMessage, now_ms: int) -> None:
        owner = self._windows.first_candidate(message.bucket)
        if self._agreed is not None and owner is not None and owner not in self.consumers:
            late = message.due_ms <= now_ms - HELP_AFTER_MS
            helpers = (name for name in self._windows.candidates(message.bucket) if late and name in self.consumers)
            owner = next(helpers, None)
            if owner is None:
                self._give_away(message)
                return
        if owner is None:
            self._unowned.append(message)
        else:
            queue = self._queues.get(owner)
            if queue is None:
                queue = self._queues[owner] = self._new_queue(owner)
            queue.add(message)

    def _new_queue(self, owner: str) -> MessageQueue:
        consumer = self.consumers.get(owner)
        return new_queue(LeaseOrder.LEASE_END if consumer is None else consumer.terms.order, self._draw)

    def _give_away(self, message: TimedMessage) -> None:
        self.queued -= 1
        self.queued_bytes -= message.size
        self._foreign.append(message)

    def _requeue(self, now_ms: int) -> None:
        waiting = sorted(self._drain(), key=lambda one: (one.due_ms, one.seq))
        for message in waiting:
            self._place(message, now_ms)

    def _all(self) -> Iterator[Iterable[TimedMessage]]:
        yield from self._queues.values()
        yield self._unowned

    def _drain(self) -> list[TimedMessage]:
        waiting = [message for queue in self._all() for message in queue]
        self._queues.clear()
        self._unowned.clear()
        return waiting

    def oldest_ms(self) -> int | None:
        """Since when one of the queued messages is available, about the first of them."""
        heads = [queue.first().due_ms for queue in self._queues.values() if len(queue)]
        return min((*heads, *(message.due_ms for message in islice(self._unowned, 1))), default=None)

    def share_here(self) -> float:
        """The part of the buckets whose consumers are connected here."""
        if self._agreed is None:
            return 1.0
        return sum(share for name, share in self.shares().items() if name in self.consumers)

    def give_up(self) -> list[TimedMessage]:
        """Take everything out of the queues."""
        waiting = self._drain()
        self.queued = self.queued_bytes = 0
        return waiting

    def take(self, now_ms: int, limit: int) -> list[tuple[TimelineConsumer, TimedMessage]]:
        """Pairs of consumers and messages to lease now, at most `limit`: own queues first, then help for others."""
        return self._take(self._ready(now_ms), limit, QUEUED_MAX)

    def take_probes(self, now_ms: int, limit: int, rounds: int) -> list[tuple[TimelineConsumer, TimedMessage]]:
        """The same with at most one message for each consumer; each round begins with another one."""
        ready = self._ready(now_ms)
        first = rounds % len(ready) if ready else 0
        return self._take([*ready[first:], *ready[:first]], limit, 1)

    def _ready(self, now_ms: int) -> list[TimelineConsumer]:
        return [one for one in self.consumers.values() if one.dealt_in and not one.silent(now_ms)]

    def _take(
        self, ready: Sequence[TimelineConsumer], limit: int, each_max: int
    ) -> list[tuple[TimelineConsumer, TimedMessage]]:
        pairs: list[tuple[TimelineConsumer, TimedMessage]] = []
        left = {}
        for consumer in ready:
            queue = self._queues.get(consumer.id, ())
            count = min(consumer.capacity(), len(queue), limit - len(pairs), each_max)
            pairs.extend((consumer, self._queues[consumer.id].take()) for _ in range(count))
            consumer.reserved += count
            left[consumer.id] = each_max - count
        for consumer in ready:
            wanted = min(consumer.capacity(), limit - len(pairs), left[consumer.id])
            helped = list(islice(self._help(consumer), wanted))
            pairs.extend((consumer, message) for message in helped)
            consumer.reserved += len(helped)
        self.queued -= len(pairs)
        self.queued_bytes -= sum(message.size for _, message in pairs)
        return pairs

    def _help(self, consumer: TimelineConsumer) -> Iterator[TimedMessage]:
        busy = {name for name in self._queues if (one := self.consumers.get(name)) is not None and one.busy}

        def is_mine(message: TimedMessage) -> bool:
            return consumer.id in self._windows.candidates(message.bucket)

        for owner, queue in self._queues.items():
            while owner != consumer.id and queue:
                if owner in busy:
                    yield queue.take()
                    continue
                found = queue.take_last(is_mine, HELP_LOOKS_MAX)
                if found is None:
                    break
                yield found


def _shared_windows(name: str, settings: TimelineSettings, registry: SharedConsumers) -> SharedWindows:
    return SharedWindows(
        settings.window_ms,
        dealer=settings.dealer,
        enrol=partial(registry.enter, name),
        withdraw=partial(registry.leave, name),
        publish=partial(registry.publish_deal, name),
    )
