"""What the leader of a partition decides about a batch: its offset, whether it repeats, whether it is refused.

`judge` answers with data and changes nothing. `accept` takes a batch in whose place is decided and answers with an
`Undo`; when the write fails the shell gives the undos back, newest first. `replay` is `accept` for batches that are
in the log already: a start ends in the state that live traffic left. A leader never gives an offset twice: the end
only goes back by `undo` of a batch that nobody was told of.

A follower keeps the same state from the batches that it copies, so that it can lead at any time; until then
(`leads` is false) it refuses what producers send.
"""

from collections import deque
from typing import Any, NamedTuple

from tidemill.model.errors import FencedLeaderEpoch, KafkaError, NotLeaderOrFollower, UnknownLeaderEpoch
from tidemill.records.header import BatchHeader
from tidemill.streams.core.aborted import AbortedIndex
from tidemill.streams.core.epochs import Epochs
from tidemill.streams.core.producers import ProducerEntry, Producers, SentBatch


class ControlMarker(NamedTuple):
    """The end of a transaction, as the control batch says it."""

    commit: bool
    coordinator_epoch: int


class Accepted(NamedTuple):
    """The batch goes into the log at this offset."""

    base_offset: int


class Duplicate(NamedTuple):
    """The batch is in the log already, there."""

    sent: SentBatch


class Refused(NamedTuple):
    """The batch does not go into the log."""

    error: KafkaError


Verdict = Accepted | Duplicate | Refused


class Undo(NamedTuple):
    """How to take back one `accept`."""

    end_offset: int
    producer_id: int
    before: ProducerEntry | None
    aborted: bool
    ended: bool = False


class Leader:
    """The decisions of one partition."""

    __slots__ = ("aborted", "clean_until", "end_offset", "ended", "epoch", "epochs", "leads", "producers")

    def __init__(self, epoch: int, end_offset: int = 0) -> None:
        self.epoch = epoch
        self.leads = True
        self.end_offset = end_offset
        self.ended: deque[tuple[int, int]] = deque()  # transactions: first offset, offset behind the marker
        self.clean_until = 0  # where compaction has come to
        self.producers = Producers()
        self.aborted = AbortedIndex()
        self.epochs = Epochs()

    def judge(self, header: BatchHeader, marker: ControlMarker | None = None) -> Verdict:
        """What happens to a batch that arrives now."""
        if not self.leads:
            return Refused(NotLeaderOrFollower("another broker leads this partition"))
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
        """Take in a batch whose header carries its final offset and epoch."""
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
        """Take in a batch that is in the log."""
        self.accept(header, now_ms, marker)

    def undo(self, undo: Undo) -> None:
        """Take back the newest `accept` that was not taken back."""
        self.end_offset = undo.end_offset
        self.epochs.truncate(undo.end_offset)
        if undo.producer_id >= 0:
            self.producers.restore(undo.producer_id, undo.before)
        if undo.aborted:
            self.aborted.drop_last()
        if undo.ended and self.ended and self.ended[-1][1] > undo.end_offset:
            self.ended.pop()

    def take_over(self, other: "Leader") -> None:
        """Become what a replay of the log has made of `other`."""
        self.end_offset = other.end_offset
        self.clean_until = min(self.clean_until, other.end_offset)
        self.producers, self.aborted, self.epochs = other.producers, other.aborted, other.epochs
        self.ended = other.ended

    def stable_offset(self, high_watermark: int) -> int:
        """The last stable offset: where the oldest open transaction begins, or the high watermark.

        A transaction whose marker is not committed yet counts as open.
        """
        ended = self.ended
        while ended and ended[0][1] <= high_watermark:
            ended.popleft()
        stable = high_watermark if not ended else min(high_watermark, *(first for first, _ in ended))
        return self._first_open(stable)

    def _first_open(self, offset: int) -> int:
        """Where the oldest open transaction begins, or `offset` when that comes first."""
        first_open = self.producers.first_open_offset()
        return offset if first_open is None else min(first_open, offset)

    def check_epoch(self, epoch: int) -> None:
        """Refuse a reader that knows an older or a newer leader epoch; -1 asks for no check."""
        if 0 <= epoch < self.epoch:
            raise FencedLeaderEpoch(f"leader epoch {epoch} is older than {self.epoch}")
        if epoch > self.epoch:
            raise UnknownLeaderEpoch(f"leader epoch {epoch} is newer than {self.epoch}")

    def trim(self, start_offset: int) -> None:
        """Forget what only concerned records before the log's new start."""
        self.aborted.trim(start_offset)
        self.epochs.trim(start_offset)

    def save(self) -> dict[str, Any]:
        """The state as plain values, for the checkpoint."""
        return {
            "producers": self.producers.save(),
            "aborted": self.aborted.save(),
            "epochs": self.epochs.save(),
            "clean_until": self.clean_until,
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Take over what `save` wrote."""
        self.producers.load(saved["producers"])
        self.aborted = AbortedIndex(saved["aborted"])
        self.epochs = Epochs(saved["epochs"])
        self.clean_until = saved["clean_until"]
