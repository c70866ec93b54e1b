"""One partition as one share group sees it: which records are free, acquired by whom, and done.

Every offset from `start_offset` (the first one that is not done) to `end_offset` is in exactly one range. An acquired
record has one owner and a deadline. When the deadline passes, the record is free again, or after a delay, or, after too
many deliveries, never.

An acknowledgement takes effect in two steps, because it must be durable before the client gets its answer: `settle`
marks the records, then `commit` or `roll_back` ends it. In between nothing else changes them: no deadline, no other
acknowledgement. `tick` and `release` take effect at once, and return what should be stored. If that is lost in a crash,
the records are delivered once more, with a lower count.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import takewhile
from typing import NamedTuple

from tidemill.model.errors import InvalidRecordState, InvalidRequest
from tidemill.shares.core.acknowledgements import AckBatch, AckType
from tidemill.shares.core.delivery_policy import DeliveryPolicy
from tidemill.shares.core.record_ranges import DeliveryState, RecordRange, RecordRanges

AVAILABLE, ACQUIRED, WAITING = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED, DeliveryState.WAITING
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
_STATE_AFTER = {
    AckType.GAP: ARCHIVED,
    AckType.ACCEPT: ACKNOWLEDGED,
    AckType.RELEASE: AVAILABLE,
    AckType.REJECT: ARCHIVED,
}
NEVER_MS = 1 << 62
NOTES_SPARE = 1_000
"""How many notes about deadlines and free records there may be besides two for each range."""


class StateBatch(NamedTuple):
    """What is stored about a range of records: AVAILABLE, ACKNOWLEDGED or ARCHIVED, and the number of deliveries."""

    first: int
    last: int
    state: DeliveryState
    deliveries: int


class LogExtent(NamedTuple):
    """The offsets of a batch in the log; not `readable`: a control batch or an aborted transaction."""

    first: int
    last: int
    readable: bool = True


class AcquiredRange(NamedTuple):
    """Records that a member got, with the number of this delivery."""

    first: int
    last: int
    deliveries: int


class Settlement(NamedTuple):
    """An acknowledgement that waits for the disk."""

    batches: list[StateBatch]
    delayed: list[tuple[int, int, int]]
    """The ranges that become available later, each with its time."""
    first: int
    last: int


class SharePartition:
    """The records of one partition in one share group."""

    def __init__(self, start_offset: int, stored: Iterable[StateBatch] = (), *, state_epoch: int = 0) -> None:
        self.state_epoch = state_epoch
        self.start_offset = start_offset
        self.log_start_offset = start_offset
        self._records = RecordRanges()
        self._ready: list[int] = []
        self._deadlines: list[tuple[int, int, int]] = []
        self._final = 0
        offset = start_offset
        for batch in stored:
            if batch.last < start_offset:
                continue
            first = max(batch.first, start_offset)
            if first > offset:
                self._extend(offset, first - 1, AVAILABLE)
            self._extend(first, batch.last, batch.state, batch.deliveries)
            offset = batch.last + 1
        self._records.join(start_offset, offset)
        self._advance()

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        """The offset after the last record that was acquired at any time."""
        return max(self._records.end_offset, self.start_offset)

    @property
    def in_flight(self) -> int:
        """How many records were acquired and are not done."""
        return self.end_offset - self.start_offset - self._final

    @property
    def finished(self) -> int:
        """How many records after the start are done."""
        return self._final

    def ranges(self) -> Iterator[RecordRange]:
        """Every range from the start on; the caller changes nothing."""
        return iter(self._records)

    def next_offset(self) -> int:
        """The offset to read from: the first free record, or the first that was never acquired."""
        while self._ready:
            offset = self._ready[0]
            found = self._records.at(offset)
            if found is not None and found.state == AVAILABLE:
                return found.first
            heappop(self._ready)
        return self.end_offset

    def has_room(self, policy: DeliveryPolicy) -> bool:
        """Whether a member may acquire something."""
        return self.next_offset() < self.end_offset or self.in_flight < policy.locks_max

    def next_deadline_ms(self) -> int:
        """The time by which `tick` should be called."""
        return self._deadlines[0][0] if self._deadlines else NEVER_MS

    # -- acquiring ----------------------------------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        extents: Sequence[LogExtent],
        from_offset: int,
        now_ms: int,
        policy: DeliveryPolicy,
        *,
        records_max: int,
        batch_size: int = NEVER_MS,
        is_exact: bool = False,
    ) -> list[AcquiredRange]:
        """Give free records of a read, which began at `from_offset`, to a member.

        Whole batches are acquired until there are `records_max` records; with `is_exact` not more than that. Offsets
        without a record are archived, so that the start can move over them.
        """
        acquired: list[AcquiredRange] = []
        left = min(records_max, policy.locks_max) if is_exact else records_max
        offset = from_offset
        for extent in extents:
            if extent.last < offset:
                continue
            first = max(extent.first, offset)
            if first > offset:
                self._archive_missing(offset, first - 1)
            if not extent.readable:
                self._archive_missing(first, extent.last)
                offset = extent.last + 1
                continue
            if left <= 0:
                break
            last = self._admitted(first, extent.last, left if is_exact else NEVER_MS, policy)
            until_ms = now_ms + policy.lock_ms
            got = self._acquire(member, first, last, until_ms, left if is_exact else NEVER_MS)
            left -= sum(each.last - each.first + 1 for each in got)
            _add(acquired, got, batch_size)
            offset = extent.last + 1
            if last < extent.last:  # there is no room for the rest
                break
        self._records.join(from_offset, offset)
        self._advance()
        return acquired

    def _admitted(self, first: int, last: int, left: int, policy: DeliveryPolicy) -> int:
        """Add offsets that are new to this group; the last offset of this batch that may be acquired."""
        end = self.end_offset
        if last < end:
            return last
        if self.in_flight >= policy.locks_max:
            return end - 1
        room = left if left == NEVER_MS else max(0, min(left, policy.locks_max - self.in_flight))
        start = max(first, end)
        added_last = min(last, start + room - 1)
        if added_last >= start:
            self._extend(start, added_last, AVAILABLE)
        return max(added_last, end - 1)

    def _acquire(self, member: str, first: int, last: int, until_ms: int, left: int) -> list[AcquiredRange]:
        got: list[AcquiredRange] = []
        for each in self._records.split(first, last) if last >= first else ():
            if each.state != AVAILABLE or left <= 0:
                continue
            taken = each
            if each.size > left:
                taken = self._records.split(each.first, each.first + left - 1)[0]
                self._offer(taken.last + 1)
            left -= taken.size
            taken.become(ACQUIRED, taken.deliveries + 1, member, until_ms)
            got.append(AcquiredRange(taken.first, taken.last, taken.deliveries))
        if last >= first:
            following = self._records.at(last + 1)
            if following is not None and following.state == AVAILABLE:
                self._offer(last + 1)
        if got:
            self._wake(until_ms, got[0].first, got[-1].last)
        return got

    def _archive_missing(self, first: int, last: int) -> None:
        """There is no record at these offsets. Acquired ones stay until they are acknowledged."""
        end = self.end_offset
        for each in self._records.split(first, last):
            if each.state in (AVAILABLE, WAITING):
                self._finish(each, ARCHIVED)
        if last >= end:
            self._extend(max(first, end), last, ARCHIVED)

    # -- acknowledging ------------------------------------------------------------------------------------------------

    def settle(self, member: str, batches: Sequence[AckBatch], now_ms: int, policy: DeliveryPolicy) -> Settlement:
        """Check an acknowledgement, all of it or nothing, and mark its records until `commit` or `roll_back`.

        Renewed records are renewed at once: a lock is not stored.
        """
        runs = [run for batch in batches for run in self._checked(member, batch)]
        stored: list[StateBatch] = []
        delayed: list[tuple[int, int, int]] = []
        for first, last, kind in runs:
            for each in self._records.split(first, last):
                if kind is AckType.RENEW:
                    each.until_ms = now_ms + policy.lock_ms
                    self._wake(each.until_ms, each.first, each.last)
                    continue
                state = self._after_release(each, policy) if kind is AckType.RELEASE else _STATE_AFTER[kind]
                each.is_settling = True
                stored.append(StateBatch(each.first, each.last, state, each.deliveries))
                delay_ms = policy.backoff.delay_ms(each.deliveries) if state == AVAILABLE else 0
                if delay_ms:
                    delayed.append((each.first, each.last, now_ms + delay_ms))
        if runs:
            self._records.join(runs[0][0], runs[-1][1])
        return Settlement(stored, delayed, runs[0][0] if runs else 0, runs[-1][1] if runs else -1)

    def commit(self, settlement: Settlement) -> None:
        """The acknowledgement is durable."""
        until = {first: until_ms for first, _, until_ms in settlement.delayed}
        for batch in settlement.batches:
            for each in self._records.split(batch.first, batch.last):
                self._become(each, batch.state, until.get(batch.first, 0))
        self._records.join(settlement.first, settlement.last)
        self._advance()

    def roll_back(self, settlement: Settlement) -> None:
        """The acknowledgement could not be stored: its records are acquired as before."""
        for batch in settlement.batches:
            for each in self._records.split(batch.first, batch.last):
                each.is_settling = False
                self._wake(each.until_ms, each.first, each.last)
        self._records.join(settlement.first, settlement.last)

    def _checked(self, member: str, batch: AckBatch) -> Iterator[tuple[int, int, AckType]]:
        """The runs of a batch that are not below the start: those were done, or deleted from the log."""
        if batch.last >= self.end_offset:
            raise InvalidRequest(f"offset {batch.last} was not acquired by any member of the group")
        for first, last, kind in batch.runs():
            if last < self.start_offset:
                continue
            begin = max(first, self.start_offset)
            for each in self._records.overlapping(begin, last):
                if each.state != ACQUIRED or each.is_settling or each.owner != member:
                    raise InvalidRecordState(
                        f"offset {max(each.first, begin)} is not acquired by this member; its lock may have ended"
                    )
            yield begin, last, kind

    # -- time and members ---------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, policy: DeliveryPolicy) -> list[StateBatch]:
        """End the locks and delays that are due; returns what should be stored."""
        changed: list[StateBatch] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, first, last = heappop(self._deadlines)
            for each in self._records.overlapping(first, last):
                if each.until_ms > now_ms or each.is_settling:
                    continue
                if each.state == WAITING:
                    self._become(each, AVAILABLE, 0)
                elif each.state == ACQUIRED:
                    changed.append(self._freed(each, now_ms, policy))
            self._records.join(first, last)
        if changed:
            self._advance()
        return changed

    def release(
        self, member: str, now_ms: int, policy: DeliveryPolicy, *, was_delivered: bool = True
    ) -> list[StateBatch]:
        """End all locks of a member that left; returns what should be stored.

        Not `was_delivered`: the client has closed, so it did not use the records, and this delivery does not count.
        """
        changed: list[StateBatch] = []
        owned = [each for each in self._records if each.owner == member and each.state == ACQUIRED]
        for each in owned:
            if not each.is_settling:
                each.deliveries -= not was_delivered
                changed.append(self._freed(each, now_ms, policy, at_once=not was_delivered))
        if changed:
            self._records.join(changed[0].first, changed[-1].last)
            self._advance()
        return changed

    def trim(self, log_start_offset: int) -> None:
        """The log starts here now: records before that cannot be delivered."""
        if log_start_offset <= self.log_start_offset:
            return
        self.log_start_offset = log_start_offset
        end = self.end_offset
        for each in self._records.split(self.start_offset, log_start_offset - 1):
            if each.state in (AVAILABLE, WAITING):
                self._finish(each, ARCHIVED)
        if log_start_offset > end:
            self._extend(end, log_start_offset - 1, ARCHIVED)
        self._records.join(self.start_offset, log_start_offset)
        self._advance()

    def _freed(self, each: RecordRange, now_ms: int, policy: DeliveryPolicy, *, at_once: bool = False) -> StateBatch:
        state = AVAILABLE if at_once else self._after_release(each, policy)
        if each.last < self.log_start_offset:
            state = ARCHIVED
        batch = StateBatch(each.first, each.last, state, each.deliveries)
        delay_ms = 0 if at_once else policy.backoff.delay_ms(each.deliveries)
        self._become(each, state, now_ms + delay_ms if delay_ms else 0)
        return batch

    def _after_release(self, each: RecordRange, policy: DeliveryPolicy) -> DeliveryState:
        is_spent = each.deliveries >= policy.deliveries_max or each.last < self.log_start_offset
        return ARCHIVED if is_spent else AVAILABLE

    # -- ranges -------------------------------------------------------------------------------------------------------

    def delay(self, now_ms: int, policy: DeliveryPolicy) -> None:
        """After the state was read: records that were delivered before wait for their delay, which starts again."""
        for each in list(self._records):
            delay_ms = policy.backoff.delay_ms(each.deliveries)
            if each.state == AVAILABLE and delay_ms:
                self._become(each, AVAILABLE, now_ms + delay_ms)

    def _become(self, each: RecordRange, state: DeliveryState, until_ms: int) -> None:
        if state != AVAILABLE:
            self._finish(each, state)
        elif until_ms:
            each.become(WAITING, each.deliveries, until_ms=until_ms)
            self._wake(until_ms, each.first, each.last)
        else:
            each.become(AVAILABLE, each.deliveries)
            self._offer(each.first)

    def _finish(self, each: RecordRange, state: DeliveryState) -> None:
        self._final += each.size
        each.become(state, each.deliveries)

    def _extend(self, first: int, last: int, state: DeliveryState, deliveries: int = 0) -> None:
        added = RecordRange(first, last, state, deliveries)
        self._records.append(added)
        if added.is_final:
            self._final += added.size
        else:
            self._offer(first)

    def _wake(self, until_ms: int, first: int, last: int) -> None:
        """Note a deadline. Old notes stay until they are due, so a client that renews often must not fill the heap."""
        heappush(self._deadlines, (until_ms, first, last))
        if len(self._deadlines) > NOTES_SPARE + 2 * len(self._records):
            self._deadlines = [(each.until_ms, each.first, each.last) for each in self._records if each.until_ms]
            heapify(self._deadlines)

    def _offer(self, offset: int) -> None:
        """Note a free record, with the same bound."""
        heappush(self._ready, offset)
        if len(self._ready) > NOTES_SPARE + 2 * len(self._records):
            self._ready = [each.first for each in self._records if each.state == AVAILABLE]

    def _advance(self) -> None:
        """Move the start over records that are done."""
        start = self.start_offset
        for each in takewhile(lambda each: each.is_final, self._records):
            self._final -= each.size
            start = each.last + 1
        if start > self.start_offset:
            self.start_offset = start
            self._records.drop_below(start)


def _add(acquired: list[AcquiredRange], got: Iterable[AcquiredRange], batch_size: int) -> None:
    """Append ranges, joined with the one before while a range stays within the batch size that the client prefers."""
    for each in got:
        before = acquired[-1] if acquired else None
        if (
            before is not None
            and before.last + 1 == each.first
            and before.deliveries == each.deliveries
            and each.last - before.first < batch_size
        ):
            acquired[-1] = before._replace(last=each.last)
        else:
            acquired.append(each)
