"""What security needs of coordination: a part of the coordination protocol, without its sessions and its clock.

Every adapter of `cluster.interface.Coordination` has these methods and keeps its rules.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol


class StoredValue(Protocol):
    """A value and the revision that wrote it."""

    @property
    def value(self) -> bytes:
        """The value."""

    @property
    def revision(self) -> int:
        """The revision that wrote the value."""


class StoreListing(Protocol):
    """Every entry under a prefix, at one revision."""

    @property
    def entries(self) -> Mapping[str, StoredValue]:
        """The entries by key."""

    @property
    def revision(self) -> int:
        """The revision of the listing."""


class StoreChange(Protocol):
    """A key has a new value, or None when it was deleted."""

    @property
    def key(self) -> str:
        """The key."""

    @property
    def value(self) -> bytes | None:
        """The new value; None when the key was deleted."""

    @property
    def revision(self) -> int:
        """The revision of the change."""


class SecurityStore(Protocol):
    """Keys that brokers agree on."""

    async def get(self, key: str) -> StoredValue | None:
        """The key's entry, or None."""

    async def get_prefix(self, prefix: str) -> StoreListing:
        """All entries whose key has this prefix."""

    async def compare_and_put(self, key: str, value: bytes | None, revision: int) -> int | None:
        """Write (or with None delete) a key that is at `revision`; the new revision, or None when the key is not."""

    def watch(self, prefix: str, after_revision: int) -> AsyncIterator[StoreChange]:
        """Every change under the prefix later than `after_revision`; a retriable error when some were missed."""
