"""Which connections are closed when there is no room for more: the slowest ones first, never the newcomer for them.

Two things run short: memory for requests, and connections. A client that sends a request by the byte holds both for as
long as it likes, and costs itself nothing. So the pace of an upload decides. A client that has just connected has a
good pace with its first bytes; one that stopped sending has a worse one with every second.
"""

from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

AGE_S_MIN = 0.001
SILENT_S = 0.25
"""A connection that has not completed a request after this time gives way to a new one."""
RESTING_S = 10.0
"""So does one that was idle for this time. Kafka's clients open an idle connection again without an error."""

T = TypeVar("T")


class Upload(NamedTuple, Generic[T]):
    """A request that has not arrived as a whole."""

    connection: T
    memory_bytes: int
    received_bytes: int
    age_s: float

    @property
    def pace(self) -> float:
        """Bytes per second since its first byte."""
        return self.received_bytes / max(self.age_s, AGE_S_MIN)


class Resting(NamedTuple, Generic[T]):
    """A connection without a request under way; `served` when it has completed one."""

    connection: T
    idle_s: float
    served: bool


def slowest(uploads: Iterable[Upload[T]], wanted_bytes: int) -> list[T]:
    """The slowest uploads that together free so many bytes, or all of them."""
    chosen: list[T] = []
    for upload in sorted(uploads, key=lambda each: each.pace):
        if wanted_bytes <= 0:
            break
        chosen.append(upload.connection)
        wanted_bytes -= upload.memory_bytes
    return chosen


def to_replace(uploads: Iterable[Upload[T]], resting: Iterable[Resting[T]]) -> list[T]:
    """The connections that give way to new ones, the first of them last; those in use are not among them."""
    stalled = sorted((each for each in uploads if each.age_s >= SILENT_S), key=lambda each: -each.pace)
    known = sorted(resting, key=lambda each: each.idle_s)
    silent = [each.connection for each in known if not each.served and each.idle_s >= SILENT_S]
    idle = [each.connection for each in known if each.served and each.idle_s >= RESTING_S]
    return [*idle, *silent, *(each.connection for each in stalled)]
