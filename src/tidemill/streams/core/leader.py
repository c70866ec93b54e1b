"""Decides about each batch of a partition: its offset, whether it is a duplicate, or why it is rejected.

`judge` returns data and changes nothing. `accept` applies a batch that has its final offset and returns an `Undo`. When
the write fails, the writer applies the undos, newest first. `replay` is `accept` for batches that are in the log
already, so that a start ends in the state that live appends left. A leader never assigns an offset twice. The end
offset moves back only by `undo` of a batch that was not acknowledged.

A follower builds the same state from the batches that it copies, so that it can lead at any time. Until then (`leads`
is false) it rejects producers.
"""

from collections import deque
from typing import Any, NamedTuple

from tidemill.model.errors import FencedLeaderEpoch, KafkaError, NotLeaderOrFollower, UnknownLeaderEpoch
from tidemill.records.header import BatchHeader
from tidemill.streams.core.aborted import AbortedIndex
from tidemill.streams.core.epochs import Epochs
from tidemill.streams.core.producers import ProducerEntry, Producers, SentBatch


class ControlMarker(NamedTuple):
    """The end of a transaction, as the control batch records it."""

    commit: bool
    coordinator_epoch: int


class Accepted(NamedTuple):
    """The batch is appended at this offset."""

    base_offset: int


class Duplicate(NamedTuple):
    """The batch is already in the log, at this position."""

    sent: SentBatch


class Refused(NamedTuple):
    """The batch is rejected."""

    error: KafkaError


Verdict = Accepted | Duplicate | Refused


class Undo(NamedTuple):
    """The data to undo one `accept`."""

    end_offset: int
    producer_id: int
    before: ProducerEntry | None
    aborted: bool
    ended: bool = False


class Leader:
    """The state and the decisions of one partition."""

    __slots__ = ("aborted", "clean_until", "end_offset", "ended", "epoch", "epochs", "leads", "producers")

    def __init__(self, epoch: int, end_offset: int = 0) -> None:
        self.epoch = epoch
        self.leads = True
        self.end_offset = end_offset
        self.ended: deque[tuple[int, int]] = deque()  # transactions: first offset, offset after the marker
        self.clean_until = 0  # the offset up to which compaction is done
        self.producers = Producers()
        self.aborted = AbortedIndex()
        self.epochs = Epochs()

    def judge(self, header: BatchHeader, marker: ControlMarker | None = None) -> Verdict:
        """Decide what happens to a batch that arrives now."""
        if not self.leads:
            return Refused(NotLeaderOrFollower("another broker leads this partition; refresh the metadata and retry"))
        if header.producer_id < 0:
            return Accepted(self.end_offset)
        if marker is not None:
            error = self.producers.judge_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
            return Refused(error) if error else Accepted(self.end_offset)
        found = self.producers.judge(header)
        if found is None:
            return Accepted(self.end_offset)
        return Duplicate(found) if isinstance(found, SentBatch) else Refused(found)

    def accept(self, header: BatchHeader, now_ms: int, marker: ControlMarker | None = None) -> Undo:
        """Apply a batch whose header has its final offset and epoch."""
        end_offset = self.end_offset
        self.end_offset = header.next_offset
        self.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id < 0:
            return Undo(end_offset, -1, None, aborted=False)
        if marker is None:
            before = self.producers.apply(header, now_ms)
            return Undo(end_offset, header.producer_id, before, aborted=False)
        first_offset = self.producers.open_offset(header.producer_id)
        before = self.producers.apply_marker(header, marker.coordinator_epoch, now_ms)
        aborted = first_offset is not None and not marker.commit
        if first_offset is not None and aborted:
            stable = self._first_open(header.next_offset)
            self.aborted.add(header.producer_id, first_offset, header.base_offset, stable)
        if first_offset is not None:
            self.ended.append((first_offset, header.next_offset))
        return Undo(end_offset, header.producer_id, before, aborted, ended=first_offset is not None)

    def replay(self, header: BatchHeader, now_ms: int, marker: ControlMarker | None = None) -> None:
        """Apply a batch that is already in the log."""
        self.accept(header, now_ms, marker)

    def undo(self, undo: Undo) -> None:
        """Undo the newest `accept` that was not undone."""
        self.end_offset = undo.end_offset
        self.epochs.truncate(undo.end_offset)
        if undo.producer_id >= 0:
            self.producers.restore(undo.producer_id, undo.before)
        if undo.aborted:
            self.aborted.drop_last()
        if undo.ended and self.ended and self.ended[-1][1] > undo.end_offset:
            self.ended.pop()

    def take_over(self, other: "Leader") -> None:
        """Adopt the state that a replay of the log built in `other`."""
        self.end_offset = other.end_offset
        self.clean_until = min(self.clean_until, other.end_offset)
        self.producers, self.aborted, self.epochs = other.producers, other.aborted, other.epochs
        self.ended = other.ended

    def stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset: the start of the oldest open transaction, or the high watermark.

        A transaction whose marker is not committed yet counts as open.
        """
        ended = self.ended
        while ended and ended[0][1] <= high_watermark:
            ended.popleft()
        stable = high_watermark if not ended else min(high_watermark, *(first for first, _ in ended))
        return self._first_open(stable)

    def _first_open(self, offset: int) -> int:
        """Return the start of the oldest open transaction, or `offset` if that is lower."""
        first_open = self.producers.first_open_offset()
        return offset if first_open is None else min(first_open, offset)

    def check_epoch(self, epoch: int) -> None:
        """Reject a reader that knows an older or newer leader epoch. -1 skips the check."""
        if 0 <= epoch < self.epoch:
            raise FencedLeaderEpoch(f"leader epoch {epoch} is older than {self.epoch}; refresh the metadata and retry")
        if epoch > self.epoch:
            raise UnknownLeaderEpoch(f"leader epoch {epoch} is newer than {self.epoch} on this broker; retry")

    def trim(self, start_offset: int) -> None:
        """Drop state that concerns only records before the log's new start."""
        self.aborted.trim(start_offset)
        self.epochs.trim(start_offset)

    def save(self) -> dict[str, Any]:
        """Return the state as plain values, for the checkpoint."""
        return {
            "producers": self.producers.save(),
            "aborted": self.aborted.save(),
            "epochs": self.epochs.save(),
            "clean_until": self.clean_until,
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Restore the state that `save` returned."""
        self.producers.load(saved["producers"])
        self.aborted = AbortedIndex(saved["aborted"])
        self.epochs = Epochs(saved["epochs"])
        self.clean_until = saved["clean_until"]
