"""Chooses the connections to close when memory for requests or connections run out.

Requests of throttled clients go first, then the slowest uploads.

A slow client can hold memory and a connection for as long as it likes, at no cost to itself. So the rate of its upload
decides. A client that has just connected has a high rate with its first bytes. The rate of a client that has stopped
sending falls with every second. A new connection is never closed in favour of a slow one.
"""

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

AGE_S_MIN = 0.001
SILENT_S = 0.25
"""A connection without a complete request after this time may be closed for a new one."""
RESTING_S = 10.0
"""An idle connection may be closed after this time. Kafka clients reconnect without an error."""

T = TypeVar("T")


class Upload(NamedTuple, Generic[T]):
    """A request of which a part has arrived."""

    connection: T
    memory_bytes: int
    received_bytes: int
    age_s: float

    @property
    def pace(self) -> float:
        """Bytes per second since its first byte."""
        return self.received_bytes / max(self.age_s, AGE_S_MIN)


class Resting(NamedTuple, Generic[T]):
    """A connection without a request in progress; `served` when it has completed one."""

    connection: T
    idle_s: float
    served: bool


class Throttled(NamedTuple, Generic[T]):
    """A connection that waits because of a quota, and the memory of its requests."""

    connection: T
    memory_bytes: int


def largest(throttled: Iterable[Throttled[T]], wanted_bytes: int) -> list[Throttled[T]]:
    """The throttled connections with the most memory that together free `wanted_bytes`, or all of them.

    Their requests may wait for an hour, so they go before the uploads of clients that keep to their quotas.
    """
    chosen: list[Throttled[T]] = []
    for each in sorted(throttled, key=lambda each: -each.memory_bytes):
        if wanted_bytes <= 0:
            break
        chosen.append(each)
        wanted_bytes -= each.memory_bytes
    return chosen


def slowest(uploads: Iterable[Upload[T]], wanted_bytes: int) -> list[T]:
    """The slowest uploads that together free `wanted_bytes`, or all of them."""
    chosen: list[T] = []
    for upload in sorted(uploads, key=lambda each: each.pace):
        if wanted_bytes <= 0:
            break
        chosen.append(upload.connection)
        wanted_bytes -= upload.memory_bytes
    return chosen


def to_replace(uploads: Iterable[Upload[T]], resting: Iterable[Resting[T]]) -> list[T]:
    """The connections that may be closed for new ones, the best choice last; none of them is in use."""
    stalled = sorted((each for each in uploads if each.age_s >= SILENT_S), key=lambda each: -each.pace)
    known = sorted(resting, key=lambda each: each.idle_s)
    silent = [each.connection for each in known if not each.served and each.idle_s >= SILENT_S]
    idle = [each.connection for each in known if each.served and each.idle_s >= RESTING_S]
    return [*idle, *silent, *(each.connection for each in stalled)]
