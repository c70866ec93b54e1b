"""The producer state of a partition, which detects duplicates, gaps and fenced producers.

For every producer id the last five batches are kept, because a producer has at most five requests in flight. The entry
also has the epoch, the open transaction and the epoch of the coordinator that ended the last one. The rules are
Kafka's:

- The same epoch and sequences as a kept batch: a duplicate.
- A lower epoch: fenced.
- A new epoch starts at sequence 0.
- The same epoch continues at last + 1, wrapping from 2^31 - 1 to 0.
- An unknown producer may start at any sequence.
- The broker's own transactional batches (offsets of a group) have a producer but no sequence. Only their epoch is
  checked.

`judge` changes nothing. `apply` changes the state for a batch that is in the log or about to be. Live appends and the
replay at start both use it, so a restart ends in the same state. Entries are immutable: `apply` returns the entry that
it replaced, and `restore` puts it back when the write failed.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidemill.model.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from tidemill.records.header import BatchHeader

BATCHES_KEPT = 5
EXPIRY_MS = 86_400_000
SEQUENCE_MAX = 2**31 - 1
NO_SEQUENCE = -1
NO_OFFSET = -1


class SentBatch(NamedTuple):
    """One batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    append_time_ms: int


class ProducerEntry(NamedTuple):
    """The state of one producer id."""

    epoch: int
    batches: tuple[SentBatch, ...]
    seen_ms: int
    coordinator_epoch: int = -1
    open_offset: int = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        """The last sequence of the current epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerSnapshot(NamedTuple):
    """A producer as DescribeProducers shows it."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


class Producers:
    """The producers of one partition."""

    __slots__ = ("_entries", "_open")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}

    def judge(self, header: BatchHeader) -> SentBatch | KafkaError | None:
        """Return None when the batch may follow, the batch that it duplicates, or the error that rejects it."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch < entry.epoch:
            return InvalidProducerEpoch(
                f"producer epoch {header.producer_epoch} is fenced by the newer epoch {entry.epoch}"
            )
        first = header.base_sequence
        if first == NO_SEQUENCE:
            return None
        if header.producer_epoch > entry.epoch:
            if first != 0:
                return OutOfOrderSequence(f"a new epoch starts at sequence 0, not {first}")
            return None
        last = header.last_sequence
        for sent in entry.batches:
            if sent.first_sequence == first and sent.last_sequence == last:
                return sent
        if not follows(entry.last_sequence, first):
            return OutOfOrderSequence(f"sequence {first} does not follow {entry.last_sequence}")
        if entry.open_offset != NO_OFFSET and not header.transactional:
            return InvalidTxnState(
                "the producer has an open transaction and sent a batch outside of it; end the transaction first"
            )
        return None

    def judge_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> KafkaError | None:
        """Return the error that rejects an end marker, or None."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        if producer_epoch < entry.epoch:
            return InvalidProducerEpoch(f"producer epoch {producer_epoch} is fenced by the newer epoch {entry.epoch}")
        if coordinator_epoch < entry.coordinator_epoch:
            return TransactionCoordinatorFenced(
                f"coordinator epoch {coordinator_epoch} is fenced by the newer epoch {entry.coordinator_epoch}"
            )
        return None

    def apply(self, header: BatchHeader, now_ms: int) -> ProducerEntry | None:
        """Apply a data batch. Return the entry that it replaced."""
        producer_id = header.producer_id
        before = self._entries.get(producer_id)
        append_time = header.max_timestamp if header.log_append_time else -1
        kept = before.batches if before is not None and before.epoch == header.producer_epoch else ()
        if header.base_sequence != NO_SEQUENCE:
            sent = SentBatch(header.base_sequence, header.last_sequence, header.base_offset, append_time)
            kept = (*kept[1 - BATCHES_KEPT :], sent)
        open_offset = before.open_offset if before is not None else NO_OFFSET
        if header.transactional and open_offset == NO_OFFSET:
            open_offset = self._open[producer_id] = header.base_offset
        coordinator_epoch = before.coordinator_epoch if before is not None else -1
        self._entries[producer_id] = ProducerEntry(header.producer_epoch, kept, now_ms, coordinator_epoch, open_offset)
        return before

    def apply_marker(self, header: BatchHeader, coordinator_epoch: int, now_ms: int) -> ProducerEntry | None:
        """Apply an end marker. Return the entry that it replaced."""
        before = self._entries.get(header.producer_id)
        kept = before.batches if before is not None and before.epoch == header.producer_epoch else ()
        self._open.pop(header.producer_id, None)
        self._entries[header.producer_id] = ProducerEntry(header.producer_epoch, kept, now_ms, coordinator_epoch)
        return before

    def restore(self, producer_id: int, before: ProducerEntry | None) -> None:
        """Restore the entry that `apply` or `apply_marker` replaced."""
        self._open.pop(producer_id, None)
        if before is None:
            self._entries.pop(producer_id, None)
            return
        self._entries[producer_id] = before
        if before.open_offset != NO_OFFSET:
            self._open[producer_id] = before.open_offset

    def expire(self, now_ms: int, expiry_ms: int = EXPIRY_MS) -> int:
        """Remove producers that were idle for `expiry_ms` and have no open transaction. Return how many."""
        old = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.seen_ms + expiry_ms <= now_ms and entry.open_offset == NO_OFFSET
        ]
        for producer_id in old:
            del self._entries[producer_id]
        return len(old)

    def open_offset(self, producer_id: int) -> int | None:
        """Return the first offset of the producer's open transaction."""
        return self._open.get(producer_id)

    def open_offset_in(self, producer_id: int, epoch: int) -> int | None:
        """Return the first offset of the open transaction, if the producer wrote to it in this epoch."""
        entry = self._entries.get(producer_id)
        return self._open.get(producer_id) if entry is not None and entry.epoch == epoch else None

    def first_open_offset(self) -> int | None:
        """Return the first offset of the oldest open transaction."""
        return min(self._open.values()) if self._open else None

    def entries(self) -> Mapping[int, ProducerEntry]:
        """Return every producer by its id. The mapping is live and changes with the partition."""
        return self._entries

    def snapshots(self) -> list[ProducerSnapshot]:
        """Return every producer, for DescribeProducers."""
        return [
            ProducerSnapshot(
                producer_id, entry.epoch, entry.last_sequence, entry.seen_ms, entry.coordinator_epoch, entry.open_offset
            )
            for producer_id, entry in self._entries.items()
        ]

    def save(self) -> list[Any]:
        """Return the state as plain lists of numbers, for the checkpoint."""
        return [
            [producer_id, entry.epoch, [list(sent) for sent in entry.batches], *entry[2:]]
            for producer_id, entry in self._entries.items()
        ]

    def load(self, saved: Iterable[Any]) -> None:
        """Restore the state that `save` returned."""
        for producer_id, epoch, batches, seen_ms, coordinator_epoch, open_offset in saved:
            sent = tuple(SentBatch(*batch) for batch in batches)
            self._entries[producer_id] = ProducerEntry(epoch, sent, seen_ms, coordinator_epoch, open_offset)
            if open_offset != NO_OFFSET:
                self._open[producer_id] = open_offset


def follows(last_sequence: int, first_sequence: int) -> bool:
    """Whether a batch that starts at `first_sequence` directly follows `last_sequence`."""
    return first_sequence == (0 if last_sequence == SEQUENCE_MAX else last_sequence + 1)
