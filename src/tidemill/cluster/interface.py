"""What the cluster asks of coordination: a small store of keys that brokers agree on.

Rules that every adapter keeps:
- Every write counts one `revision` up, the same for all keys; an entry carries the revision that wrote it.
- `compare_and_put` writes only when the key is still at the revision that the caller saw (0: there is no key), and
  returns None otherwise. There are no locks: who lost reads again and decides again. An answered write is durable.
- `watch` tells every later change under a prefix, in order, each once, and begins right after `after_revision`: list
  with `get_prefix`, then watch from the revision it gave, and nothing is missed. Where the adapter no longer knows the
  changes in between it raises WatchGap: list again.
- A `session` is a broker's liveness. Keys written under it vanish when it ends, and a session that cannot be renewed
  has ended for its owner (`alive` is false) before it has ended for the others.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from tidemill.cluster.core.image import PartitionInfo
from tidemill.model.errors import KafkaError, TidemillError


class CoordinationAway(KafkaError):
    """Coordination did not answer; whether the change was made is not known."""

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
    """Every entry under a prefix, and the revision at which this was so."""

    entries: Mapping[str, VersionedValue]
    revision: int


class Changed(NamedTuple):
    """A key has a new value, or None when it is gone."""

    key: str
    value: bytes | None
    revision: int


class KeyGuard(NamedTuple):
    """A key that must still be at this revision for a write to count: who lost it writes nothing any more."""

    key: str
    revision: int


class ClockReading(NamedTuple):
    """The time by the clock of coordination, and how far it may be off."""

    ms: int
    error_ms: int


class CoordinationSession(Protocol):
    """The liveness of this broker."""

    @property
    def alive(self) -> bool:
        """Whether this broker may still act as a member."""

    async def ended(self) -> None:
        """Wait until it may not."""


class Coordination(Protocol):
    """Keys that brokers agree on."""

    @property
    def shared(self) -> bool:
        """Whether other brokers may be there."""

    async def get(self, key: str) -> VersionedValue | None:
        """The key's entry, if there is one."""

    async def get_prefix(self, prefix: str) -> PrefixListing:
        """All entries whose key begins so."""

    async def compare_and_put(
        self,
        key: str,
        value: bytes | None,
        revision: int,
        *,
        session: CoordinationSession | None = None,
        guard: KeyGuard | None = None,
    ) -> int | None:
        """Write (or with None remove) a key that is at `revision`; the new revision, or None when it is not.

        With a guard, None also when that key is not where the caller saw it.
        """

    def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Changed]:
        """Every change under the prefix later than `after_revision`."""

    def session(self, ttl_ms: int) -> AbstractAsyncContextManager[CoordinationSession]:
        """A session that is renewed while the block runs and ended after it."""

    async def clock(self) -> ClockReading | None:
        """The time of day there; None where coordination has no clock of its own or does not tell."""

    async def close(self) -> None:
        """Let go of what is held."""


class PartitionStates(Protocol):
    """How the leader of a partition changes who is in sync."""

    async def propose_isr(
        self, topic: str, index: int, leader_epoch: int, version: int, isr: tuple[int, ...]
    ) -> PartitionInfo:
        """Write this in-sync set if epoch and version are still the partition's; what it is then.

        FencedLeaderEpoch and InvalidUpdateVersion: somebody changed it, the next image says how. CoordinationAway: the
        outcome is not known; until it is, whoever asked counts both sets.
        """
