"""What share groups need: where their state is stored, and the log that their records are in."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tidemill.records.header import Buffer
from tidemill.shares.core.durable_state import ShareKey, StateWrite
from tidemill.shares.core.share_partition import StateBatch


class StoredState(NamedTuple):
    """The stored state of a share partition. `finished` records after the start are done."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    finished: int = 0


class ShareStateStore(Protocol):
    """The stored state of all share partitions, whichever broker has it."""

    async def initialize(self, key: ShareKey, start_offset: int) -> None:
        """Create the state, or replace it by one that starts at an offset (NO_START: its leader decides)."""

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        """Read the state for the leader of the partition; earlier leaders can no longer write."""

    async def summary(self, key: ShareKey) -> StoredState:
        """Read the state without its batches."""

    async def write(self, key: ShareKey, change: StateWrite) -> None:
        """Store a change; durable when this returns."""

    async def delete(self, key: ShareKey) -> None:
        """Delete the state. Nothing happens when there is none."""


class ReadBatches(NamedTuple):
    """Whole batches of a log, and the aborted transactions in them (producer, first offset)."""

    chunks: list[Buffer]
    aborted: list[tuple[int, int]]


class ShareLog(Protocol):
    """The log of a partition on its leader."""

    @property
    def leads(self) -> bool:
        """Whether this broker leads the partition."""

    @property
    def leader_epoch(self) -> int:
        """The epoch that it leads in."""

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""

    def end_offset(self, *, committed: bool) -> int:
        """The offset after the last record that a reader may see."""

    async def read(self, offset: int, max_bytes: int, *, committed: bool) -> ReadBatches:
        """Batches from an offset on, at least one if there is any."""

    async def offset_at(self, timestamp_ms: int) -> int | None:
        """The first offset whose record is not older; None without one."""

    async def settled(self) -> None:
        """Return when the end of the log is known, after a change of leaders."""

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when a reader may see more; the result stops the watch."""


OpenLog = Callable[[str, int], ShareLog]
"""Opens the log of a partition of a topic; NotLeaderOrFollower on another broker."""
