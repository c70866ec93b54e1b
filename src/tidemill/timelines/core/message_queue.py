"""The queue of one consumer: ripe messages in the order in which the consumer wants them.

- `lease-end` (the default): as they became available. That is the due time, or for a message that was leased before
  the end of that lease, or of the pause that its consumer asked for. A returned message is behind those that waited.
- `due`: by the due time that the producer asked for. A returned message is before those that are due later.
- `random`: any of them.

Another consumer that helps takes from the far end, so that it seldom takes what the owner is about to take.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Protocol

from tidemill.timelines.core.message import TimedMessage

Draw = Callable[[int], int]
"""Draws a number from 0 up to, but not including, the argument."""


class LeaseOrder(Enum):
    """Which of several due messages a consumer gets first."""

    LEASE_END = "lease-end"
    DUE = "due"
    RANDOM = "random"


class MessageQueue(Protocol):
    """Messages for one consumer."""

    def add(self, message: TimedMessage, /) -> None:
        """Add a message."""

    def take(self) -> TimedMessage:
        """Take out the next message."""

    def first(self) -> TimedMessage:
        """The next message, or about the next one of a random queue; not of an empty queue."""

    def take_last(self, is_wanted: Callable[[TimedMessage], bool], looks_max: int) -> TimedMessage | None:
        """Take out the last wanted one of the last `looks_max` messages."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[TimedMessage]: ...


class ArrivalQueue(deque[TimedMessage]):
    """As messages became available."""

    add = deque.append
    take = deque.popleft

    def first(self) -> TimedMessage:
        """The message that became available first."""
        return self[0]

    def take_last(self, is_wanted: Callable[[TimedMessage], bool], looks_max: int) -> TimedMessage | None:
        """Take out the last wanted one of the last messages."""
        at = _last_wanted(self, is_wanted, looks_max)
        if at is None:
            return None
        message = self[at]
        del self[at]
        return message


class DueQueue(list[TimedMessage]):
    """By due time; the next message is the last of the list, because it is cheap to remove."""

    def add(self, message: TimedMessage) -> None:
        """Add a message at its place."""
        insort(self, message, key=_from_last)

    def take(self) -> TimedMessage:
        """Take out the message that was due first."""
        return self.pop()

    def first(self) -> TimedMessage:
        """The message that was due first."""
        return self[-1]

    def take_last(self, is_wanted: Callable[[TimedMessage], bool], looks_max: int) -> TimedMessage | None:
        """Take out the wanted one that is due last."""
        looks = range(min(len(self), looks_max))
        at = next((place for place in looks if is_wanted(self[place])), None)
        return None if at is None else self.pop(at)


class RandomQueue(list[TimedMessage]):
    """In no order."""

    def __init__(self, draw: Draw) -> None:
        super().__init__()
        self._draw = draw
        self.add = self.append

    def take(self) -> TimedMessage:
        """Take out any message."""
        at = self._draw(len(self))
        self[at], self[-1] = self[-1], self[at]
        return self.pop()

    def first(self) -> TimedMessage:
        """Any message."""
        return self[0]

    def take_last(self, is_wanted: Callable[[TimedMessage], bool], looks_max: int) -> TimedMessage | None:
        """Take out a wanted one of the last messages."""
        at = _last_wanted(self, is_wanted, looks_max)
        return None if at is None else self.pop(at)


def new_queue(order: LeaseOrder, draw: Draw) -> MessageQueue:
    """An empty queue of a consumer that wants this order."""
    if order is LeaseOrder.RANDOM:
        return RandomQueue(draw)
    return DueQueue() if order is LeaseOrder.DUE else ArrivalQueue()


def _from_last(message: TimedMessage) -> tuple[int, int]:
    return -message.scheduled_ms, -message.seq


def _last_wanted(
    queue: "deque[TimedMessage] | list[TimedMessage]", is_wanted: Callable[[TimedMessage], bool], looks_max: int
) -> int | None:
    looks = range(len(queue) - 1, max(-1, len(queue) - 1 - looks_max), -1)
    return next((place for place in looks if is_wanted(queue[place])), None)
