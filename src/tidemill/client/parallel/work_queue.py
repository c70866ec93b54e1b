"""The queue between the polling thread and the workers: hands out records and takes back results.

One lock guards the pure parts (waiting records, completed offsets). It is held for microseconds, and never while a
handler, the network or a commit runs. A worker that reports a result takes its next record at once, so the polling
thread does not slow it down.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidemill.client.parallel.metadata import encode
from tidemill.client.parallel.offsets import CompletedRun, PartitionTracking, SequenceTracking, Skipping, Tracking
from tidemill.client.parallel.record import ParallelRecord
from tidemill.client.parallel.work import Ordering, Work
from tidemill.model.topics import TopicPartition


@dataclass(slots=True)
class Counts:
    """The counters since the start."""

    received: int = 0
    completed: int = 0
    skipped: int = 0
    failures: int = 0
    failures_in_row: int = 0
    retries: int = 0
    dead_letters: int = 0
    dropped: int = 0
    handler_s: float = 0.0


class WorkQueue:
    """The queue that the polling thread and the workers share."""

    def __init__(self, ordering: Ordering, tracking: str) -> None:
        self.counts = Counts()
        self._work: Work[ParallelRecord] = Work(ordering)
        self._tracking: Tracking = PartitionTracking() if tracking == "partition" else SequenceTracking()
        self._assignments: dict[TopicPartition, int] = {}
        self._skipping: dict[TopicPartition, Skipping] = {}
        self._generation = 0
        self._closed = False
        self._ready = threading.Condition()
        self._pump: Callable[[], None] | None = None

    # Called by the polling thread.

    def on_ready(self, pump: Callable[[], None]) -> None:
        """Call `pump`, instead of waking a thread, when there may be a record to take."""
        self._pump = pump

    def assign(self, place: TopicPartition, complete: Iterable[CompletedRun] = ()) -> None:
        """Add an assigned partition. `complete` are the records that were complete beyond its last commit."""
        with self._ready:
            self._generation += 1
            self._assignments[place] = self._generation
            self._skipping[place] = Skipping(complete)

    def unassign(self, place: TopicPartition) -> None:
        """Remove a partition: waiting records are dropped, and later results are ignored."""
        with self._ready:
            if self._assignments.pop(place, None) is None:
                return
            self._work.drop(place)
            self._tracking.forget(place)
            self._skipping.pop(place, None)

    def assigned(self) -> list[TopicPartition]:
        """The assigned partitions."""
        with self._ready:
            return sorted(self._assignments)

    def put(self, records: Iterable[ParallelRecord]) -> None:
        """Add received records, in order."""
        added = 0
        with self._ready:
            for record in records:
                place = record.place
                assignment = self._assignments.get(place)
                if assignment is None:
                    self.counts.dropped += 1
                    continue
                self.counts.received += 1
                self._tracking.received(place, record.offset)
                if self._skipping[place].skips(record.offset):
                    self._tracking.completed(place, record.offset)
                    self.counts.skipped += 1
                    continue
                self._work.add(record._replace(assignment=assignment))
                added += 1
            self._announce(added)

    def wake(self, now_ms: int) -> None:
        """Make the records ready whose retry is due."""
        with self._ready:
            due = self._work.next_due_ms()
            if due is not None and due <= now_ms:
                before = self._work.waiting
                self._work.wake(now_ms)
                self._announce(before)

    def next_due_ms(self) -> int | None:
        """When the next retry is due."""
        with self._ready:
            return self._work.next_due_ms()

    def held(self, place: TopicPartition | None = None) -> int:
        """The number of received records that are not complete, of one partition or of all."""
        with self._ready:
            return self._work.waiting + self._work.in_flight if place is None else self._tracking.pending(place)

    def load(self) -> tuple[int, int]:
        """The number of waiting records, and of records being handled."""
        with self._ready:
            return self._work.waiting, self._work.in_flight

    def stop_waiting(self, place: TopicPartition) -> int:
        """Stop handing out records of a partition. Returns how many of them are still being handled."""
        with self._ready:
            return self._work.idle(place)

    def commits(
        self, metadata_bytes_max: int, only: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, tuple[int, str]]:
        """The committable offset of each partition, with the records complete beyond it as metadata."""
        with self._ready:
            places = set(self._assignments) if only is None else set(only) & set(self._assignments)
            found = {place: offset for place, offset in self._tracking.committable().items() if place in places}
            runs = {place: self._tracking.beyond(place) for place in found}
        return {
            place: (offset, encode(offset, runs[place], limit=metadata_bytes_max)) for place, offset in found.items()
        }

    def beyond(self) -> int:
        """The number of records that are complete beyond a gap."""
        with self._ready:
            return sum(run.last - run.first + 1 for place in self._assignments for run in self._tracking.beyond(place))

    # Called by workers.

    def take(self) -> ParallelRecord | None:
        """The next record, if there is one."""
        with self._ready:
            return None if self._closed else self._work.take()

    def wait(self) -> ParallelRecord | None:
        """Wait for the next record. None when the queue is closed."""
        with self._ready:
            while not self._closed:
                record = self._work.take()
                if record is not None:
                    return record
                self._ready.wait()
            return None

    def finished(self, record: ParallelRecord, handler_s: float = 0.0, *, well: bool = True) -> None:
        """Complete a record: handled (`well`), skipped or written as a dead letter."""
        with self._ready:
            if self._late(record):
                return
            self.counts.completed += 1
            self.counts.handler_s += handler_s
            if well:
                self.counts.failures_in_row = 0
            self._tracking.completed(record.place, record.offset)
            self._work.finished(record)
            self._announce(1)

    def failed(self) -> int:
        """Count a failed handler. Returns how many failed in a row."""
        with self._ready:
            self.counts.failures += 1
            self.counts.failures_in_row += 1
            return self.counts.failures_in_row

    def retry(self, record: ParallelRecord, due_ms: int) -> None:
        """Try a record again at `due_ms`."""
        with self._ready:
            if self._late(record):
                return
            self.counts.retries += 1
            self._work.retry(record._replace(attempt=record.attempt + 1), due_ms)

    def close(self) -> None:
        """Close the queue: waiting workers end."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def _late(self, record: ParallelRecord) -> bool:
        if self._assignments.get(record.place) == record.assignment:
            return False
        self.counts.dropped += 1
        return True

    def _announce(self, count: int) -> None:
        if not count:
            return
        if self._pump is not None:
            self._pump()
        else:
            self._ready.notify(count)
