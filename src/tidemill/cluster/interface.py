"""The coordination protocol: a small key-value store that all brokers agree on.

Rules that every adapter keeps:
- Every write increments one `revision` for all keys; an entry carries the revision that wrote it.
- `compare_and_put` writes only when the key is still at the revision that the caller saw (0: the key does not exist).
  Otherwise it returns None. There are no locks: a caller that lost reads again and decides again. An acknowledged
  write is durable.
- `watch` yields every later change under a prefix once and in order, starting right after `after_revision`. List with
  `get_prefix`, then watch from the revision that it returned, and no change is missed. When the adapter no longer has
  the changes in between, it raises WatchGap, and the caller lists again.
- A `session` is the liveness of a broker. Keys written under it are deleted when it ends. A session that cannot be
  renewed ends for its owner (`alive` is false) before it ends for the other brokers.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from tidemill.cluster.core.image import PartitionInfo
from tidemill.model.errors import KafkaError, TidemillError


class CoordinationAway(KafkaError):
    """Coordination did not answer; it is not known whether the change was made."""

    code = 7
    retriable = True


class WatchGap(TidemillError):
    """Changes were missed; list the prefix again and watch from there."""

    retriable = True


class VersionedValue(NamedTuple):
    """A value and the revision that wrote it."""

    value: bytes
    revision: int


class PrefixListing(NamedTuple):
    """Every entry under a prefix, at one revision."""

    entries: Mapping[str, VersionedValue]
    revision: int


class Changed(NamedTuple):
    """A key has a new value, or None when it was deleted."""

    key: str
    value: bytes | None
    revision: int


class KeyGuard(NamedTuple):
    """A key that must still be at this revision for a write to succeed. A broker that lost the key cannot write."""

    key: str
    revision: int


class ClockReading(NamedTuple):
    """The time of coordination's clock, and its maximum error."""

    ms: int
    error_ms: int


class CoordinationSession(Protocol):
    """The liveness of this broker."""

    @property
    def alive(self) -> bool:
        """Whether this broker may still act as a member."""

    async def ended(self) -> None:
        """Wait until the session has ended."""


class Coordination(Protocol):
    """Keys that brokers agree on."""

    @property
    def shared(self) -> bool:
        """Whether other brokers may use the same store."""

    async def get(self, key: str) -> VersionedValue | None:
        """The key's entry, or None."""

    async def get_prefix(self, prefix: str) -> PrefixListing:
        """All entries whose key has this prefix."""

    async def compare_and_put(
        self,
        key: str,
        value: bytes | None,
        revision: int,
        *,
        session: CoordinationSession | None = None,
        guard: KeyGuard | None = None,
    ) -> int | None:
        """Write (or with None delete) a key that is at `revision`; the new revision, or None when the key is not at it.

        With a guard, also None when the guard's key is not at its revision.
        """

    def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Changed]:
        """Every change under the prefix later than `after_revision`."""

    def session(self, ttl_ms: int) -> AbstractAsyncContextManager[CoordinationSession]:
        """A session that is renewed while the block runs and ended after it."""

    async def clock(self) -> ClockReading | None:
        """The time of day of coordination; None when it has no clock of its own or does not report it."""

    async def close(self) -> None:
        """Close the connections or files."""


class PartitionStates(Protocol):
    """How the leader of a partition changes the in-sync set."""

    async def propose_isr(
        self, topic: str, index: int, leader_epoch: int, version: int, isr: tuple[int, ...]
    ) -> PartitionInfo:
        """Write this in-sync set if epoch and version are still current; the new state of the partition.

        FencedLeaderEpoch and InvalidUpdateVersion: another broker changed the state, and the next image has it.
        CoordinationAway: the outcome is unknown, so the caller must count both the old and the new set until it is
        known.
        """
