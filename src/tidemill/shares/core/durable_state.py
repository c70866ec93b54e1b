"""The stored state of a share partition, as its coordinator keeps it: what is done, and how often the rest was tried.

The leader of the partition reads it when it takes over, and writes what changes. Two epochs fence: the leader epoch, so
that a leader that was replaced cannot write, and the state epoch, which grows when an operator resets the offsets.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from tidemill.model.errors import FencedLeaderEpoch, FencedStateEpoch, InvalidRequest
from tidemill.shares.core.record_ranges import DeliveryState, RecordRange, RecordRanges
from tidemill.shares.core.share_partition import StateBatch

ID_CHARS = 22
"""The length of a topic id in base 64."""
NO_START = -1
"""The group has not begun to read the partition: its leader decides where."""


class ShareKey(NamedTuple):
    """A partition of a topic in a group."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def text(self) -> str:
        """The key that selects the coordinator, in Kafka's form."""
        topic_id = urlsafe_b64encode(self.topic_id.bytes).decode().rstrip("=")
        return f"{self.group_id}:{topic_id}:{self.partition}"


def read_share_key(text: str) -> ShareKey:
    """The share partition of a key in Kafka's form. Raises InvalidRequest."""
    parts = text.rsplit(":", 2)
    try:
        group_id, topic_id, partition = parts
        found = ShareKey(group_id, _uuid(topic_id), int(partition))
    except ValueError:
        raise InvalidRequest(f"{text[:80]!r} is not a key of a share partition; use group:topicId:partition") from None
    if not group_id or found.partition < 0:
        raise InvalidRequest(f"{text[:80]!r} is not a key of a share partition; use group:topicId:partition")
    return found


def _uuid(text: str) -> UUID:
    """An id in Kafka's base 64, or in hexadecimal digits."""
    return UUID(bytes=urlsafe_b64decode(text + "==")) if len(text) == ID_CHARS else UUID(text)


class StateWrite(NamedTuple):
    """A change of the stored state."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]


class DurableState:
    """The stored state of one share partition."""

    def __init__(self, state_epoch: int, start_offset: int, leader_epoch: int = 0) -> None:
        self.state_epoch = state_epoch
        self.start_offset = start_offset
        self.leader_epoch = leader_epoch
        self.updates = 0
        """How many updates were journaled after the last snapshot."""
        self._ranges = RecordRanges()

    @property
    def finished(self) -> int:
        """How many records after the start are done."""
        return sum(each.size for each in self._ranges if each.is_final)

    def batches(self) -> tuple[StateBatch, ...]:
        """Everything that is known about records from the start on."""
        return tuple(StateBatch(each.first, each.last, each.state, each.deliveries) for each in self._ranges)

    def check_leader(self, leader_epoch: int) -> None:
        """Reject a leader of the partition that was replaced."""
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"leader epoch {leader_epoch} is old; {self.leader_epoch} has read the state")

    def check(self, write: StateWrite) -> None:
        """Reject a leader that was replaced, or that knows a state which was."""
        self.check_leader(write.leader_epoch)
        if write.state_epoch != self.state_epoch:
            raise FencedStateEpoch(f"state epoch {write.state_epoch} is not current, {self.state_epoch} is")

    def apply(self, write: StateWrite) -> None:
        """Take over a change. The start never goes back, except by another state epoch."""
        self.leader_epoch = max(self.leader_epoch, write.leader_epoch)
        for batch in write.batches:
            if batch.last >= self.start_offset:
                first = max(batch.first, self.start_offset)
                self._ranges.put(RecordRange(first, batch.last, batch.state, batch.deliveries))
        if write.start_offset > self.start_offset:
            self._move(write.start_offset)
        head = self._ranges.head
        while head is not None and head.is_final and head.first <= self.start_offset != NO_START:
            self._move(head.last + 1)
            head = self._ranges.head

    def _move(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self._ranges.drop_below(start_offset)


def readable_batches(rows: Sequence[tuple[int, int, int, int]]) -> tuple[StateBatch, ...]:
    """Batches from another broker or from the disk. Raises ValueError for a state that is not stored."""
    batches = tuple(StateBatch(first, last, DeliveryState(state), count) for first, last, state, count in rows)
    for batch in batches:
        if batch.state in {DeliveryState.ACQUIRED, DeliveryState.WAITING} or not 0 <= batch.first <= batch.last:
            raise ValueError(f"{batch} cannot be stored")
    return batches
