"""The state that the sides of a partition share: its log, its role, and its high watermark.

A partition without other replicas leads from the start: its high watermark moves with the write. In a cluster the high
watermark of a leader is the end of the records that all in-sync replicas have on disk. Between two awaits nothing
changes, because everything runs on one event loop.
"""

from collections.abc import Callable
from typing import Any

from tidemill.model.errors import KafkaStorageError, NotLeaderOrFollower
from tidemill.streams.core.insync import Term
from tidemill.streams.core.leader import Leader
from tidemill.streams.core.waiters import Waiters
from tidemill.streams.flusher import Flusher
from tidemill.streams.interface import StreamLog
from tidemill.streams.leader_replication import LeaderReplication
from tidemill.streams.writer import PartitionWriter

FLUSHED = "fsync"


class ReplicaState:
    """The log of one replica, with its writer and flusher, its role and its high watermark."""

    def __init__(self, log: StreamLog, topic: str, index: int, leader: Leader, clock: Callable[[], int]) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.leader = leader
        self.clock = clock
        self.is_closed = False
        self.term: Term | None = None
        self.replication: LeaderReplication | None = None
        """Set while this broker leads and there are followers."""
        self.waiters = Waiters()
        self.replica_waiters = Waiters()
        self.writer = PartitionWriter(log, leader, clock, self.on_written)
        self.flusher = Flusher(log, log.end_offset, self._on_flushed)
        self.high_watermark = log.end_offset
        self._stable_offset = leader.stable_offset(log.end_offset)

    @property
    def stable_offset(self) -> int:
        """Where the first open transaction begins, or the high watermark."""
        return self._stable_offset

    @property
    def last_stable_offset(self) -> int:
        """The stable offset for readers: the log may start after the beginning of an open transaction."""
        return max(self._stable_offset, min(self.log.start_offset, self.high_watermark))

    @property
    def waits_for_flush(self) -> bool:
        """Whether acknowledged records must be on disk."""
        return self.log.settings.tidemill_flush == FLUSHED

    def own_offset(self) -> int:
        """The end of the records that this replica counts as its own."""
        return self.flusher.flushed_offset if self.waits_for_flush else self.log.end_offset

    def on_written(self) -> None:
        """Batches were appended."""
        if not self.leader.leads:
            return
        if self.replication is None:
            self.move_high_watermark(self.log.end_offset)
            return
        self.replica_waiters.wake()
        if self.log.end_offset > self.own_offset():
            self.flusher.begin()
        else:
            self.replication.advance()

    def _on_flushed(self) -> None:
        if self.replication is not None:
            self.replication.advance()

    def on_commit(self) -> None:
        """The in-sync replicas have more records."""
        if self.replication is not None and self.leader.leads:
            self.move_high_watermark(self.replication.high_watermark)

    def move_high_watermark(self, high_watermark: int) -> None:
        """Set the high watermark and wake readers."""
        self.high_watermark = high_watermark
        self._stable_offset = self.leader.stable_offset(high_watermark)
        self.waiters.wake()

    def load_high_watermark(self, known: Term | None) -> None:
        """Take the high watermark from the checkpoint when a replica gets its first role."""
        if known is None:
            saved = self.log.saved.state.get("high_watermark", 0) if self.log.saved is not None else 0
            self.move_high_watermark(min(max(saved, self.log.start_offset), self.log.end_offset))

    async def change_role(self, term: Term) -> None:
        """Stop leading, if this broker leads; batches in the writer still reach the log, under the old epoch."""
        replication, self.replication = self.replication, None
        self.term = term
        self.leader.leads = False
        if replication is not None:
            await replication.end(self.not_leader())
        self.wake()

    def wake(self) -> None:
        """Wake readers and followers."""
        self.waiters.wake()
        self.replica_waiters.wake()

    def visible_end(self, *, committed: bool) -> int:
        """The end of the records that a reader can see."""
        return self.last_stable_offset if committed else self.high_watermark

    def checkpoint_state(self) -> dict[str, Any]:
        """The state that a checkpoint stores next to the log."""
        return {**self.leader.save(), "high_watermark": self.high_watermark}

    def check_open(self) -> None:
        """Raise an error when the partition is closed or its disk has failed."""
        if self.is_closed:
            raise NotLeaderOrFollower(f"{self.topic}-{self.index} is closed")
        if self.log.failed is not None:
            raise KafkaStorageError(f"{self.topic}-{self.index} is fenced: {self.log.failed}")

    def check_leads(self) -> None:
        """NotLeaderOrFollower unless this broker leads the partition."""
        self.check_open()
        if not self.leader.leads:
            raise self.not_leader()

    def not_leader(self) -> NotLeaderOrFollower:
        """The error for clients that have to find the leader."""
        return NotLeaderOrFollower(f"{self.topic}-{self.index} is led by another broker")
