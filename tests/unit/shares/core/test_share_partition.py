"""The records of a share partition, compared with a model that has one entry for each record."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidemill.model.errors import InvalidRecordState, InvalidRequest
from tidemill.shares.core.acknowledgements import AckBatch, AckType, check_batches
from tidemill.shares.core.delivery_policy import DeliveryPolicy, RetryBackoff
from tidemill.shares.core.record_ranges import FINAL, DeliveryState
from tidemill.shares.core.share_partition import (
    AcquiredRange,
    LogExtent,
    Settlement,
    SharePartition,
    StateBatch,
)

POLICY = DeliveryPolicy(lock_ms=1_000, deliveries_max=3, locks_max=40)
MEMBERS = ("a", "b", "c")
AVAILABLE, ACQUIRED, WAITING = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED, DeliveryState.WAITING
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED


def batches_of(first: int, count: int, size: int = 10) -> list[LogExtent]:
    return [LogExtent(at, at + size - 1) for at in range(first, first + count * size, size)]


def acquire_all(partition: SharePartition, member: str = "a", now_ms: int = 0, count: int = 1) -> list[AcquiredRange]:
    start = partition.next_offset()
    return partition.acquire(member, batches_of(start - start % 10, count), start, now_ms, POLICY, records_max=1_000)


def acknowledge(partition: SharePartition, member: str, first: int, last: int, kind: AckType, now_ms: int = 0) -> None:
    partition.commit(partition.settle(member, [AckBatch(first, last, (kind,))], now_ms, POLICY))


def test_whole_batches_are_acquired_until_the_maximum_is_reached() -> None:
    partition = SharePartition(0)
    got = partition.acquire("a", batches_of(0, 4), 0, 0, POLICY, records_max=15)
    assert got == [AcquiredRange(0, 19, 1)]
    assert partition.next_offset() == 20


def test_a_limit_in_records_splits_a_batch() -> None:
    partition = SharePartition(0)
    got = partition.acquire("a", batches_of(0, 4), 0, 0, POLICY, records_max=15, is_exact=True)
    assert got == [AcquiredRange(0, 14, 1)]
    assert partition.next_offset() == 15
    assert partition.acquire("b", batches_of(10, 1), 15, 0, POLICY, records_max=9) == [AcquiredRange(15, 19, 1)]


def test_acquired_ranges_follow_the_batch_size_that_the_client_prefers() -> None:
    partition = SharePartition(0)
    got = partition.acquire("a", batches_of(0, 4), 0, 0, POLICY, records_max=40, batch_size=20)
    assert got == [AcquiredRange(0, 19, 1), AcquiredRange(20, 39, 1)]


def test_no_more_records_are_acquired_than_there_are_locks() -> None:
    partition = SharePartition(0)
    assert partition.acquire("a", batches_of(0, 9), 0, 0, POLICY, records_max=1_000) == [AcquiredRange(0, 39, 1)]
    assert not partition.has_room(POLICY)
    acknowledge(partition, "a", 5, 5, AckType.ACCEPT)
    assert partition.has_room(POLICY)
    acknowledge(partition, "a", 0, 4, AckType.ACCEPT)
    assert partition.start_offset == 6


def test_a_gap_of_the_log_does_not_hold_the_start() -> None:
    partition = SharePartition(0)
    extents = [LogExtent(5, 9), LogExtent(10, 10, readable=False), LogExtent(13, 15)]
    assert partition.acquire("a", extents, 0, 0, POLICY, records_max=100) == [
        AcquiredRange(5, 9, 1),
        AcquiredRange(13, 15, 1),
    ]
    acknowledge(partition, "a", 5, 9, AckType.ACCEPT)
    assert partition.start_offset == 13


def test_types_for_each_record_with_gaps() -> None:
    partition = SharePartition(0)
    acquire_all(partition)
    types = (AckType.ACCEPT, AckType.RELEASE, AckType.REJECT, AckType.GAP)
    settlement = partition.settle("a", [AckBatch(0, 3, types)], 0, POLICY)
    assert settlement.batches == [
        StateBatch(0, 0, ACKNOWLEDGED, 1),
        StateBatch(1, 1, AVAILABLE, 1),
        StateBatch(2, 2, ARCHIVED, 1),
        StateBatch(3, 3, ARCHIVED, 1),
    ]
    partition.commit(settlement)
    assert partition.start_offset == 1
    assert partition.next_offset() == 1


def test_the_start_moves_over_very_many_ranges_at_once() -> None:
    policy = DeliveryPolicy(locks_max=4_000)
    partition = SharePartition(0)
    partition.acquire("a", batches_of(0, 400), 0, 0, policy, records_max=4_000)
    types = (AckType.ACCEPT, AckType.REJECT) * 1_999 + (AckType.ACCEPT,)
    partition.commit(partition.settle("a", [AckBatch(1, 3_999, types)], 0, policy))
    assert partition.start_offset == 0
    acknowledge(partition, "a", 0, 0, AckType.ACCEPT)
    assert partition.start_offset == 4_000
    assert partition.has_room(POLICY)


def test_a_record_does_not_change_while_its_acknowledgement_is_stored() -> None:
    partition = SharePartition(0)
    acquire_all(partition)
    settlement = partition.settle("a", [AckBatch(0, 9, (AckType.RELEASE,))], 0, POLICY)
    assert partition.tick(5_000, POLICY) == []
    assert partition.release("a", 5_000, POLICY) == []
    with pytest.raises(InvalidRecordState):
        partition.settle("a", [AckBatch(3, 3, (AckType.ACCEPT,))], 0, POLICY)
    partition.roll_back(settlement)
    assert partition.tick(5_000, POLICY) == [StateBatch(0, 9, AVAILABLE, 1)]


@pytest.mark.parametrize("member", ["b", ""])
def test_only_the_owner_acknowledges(member: str) -> None:
    partition = SharePartition(0)
    acquire_all(partition)
    with pytest.raises(InvalidRecordState):
        acknowledge(partition, member, 0, 9, AckType.ACCEPT)
    assert partition.start_offset == 0


def test_a_failed_range_fails_the_whole_acknowledgement() -> None:
    partition = SharePartition(0)
    acquire_all(partition, "a")
    acquire_all(partition, "b")
    batches = [AckBatch(0, 4, (AckType.ACCEPT,)), AckBatch(8, 12, (AckType.ACCEPT,))]
    with pytest.raises(InvalidRecordState):
        partition.settle("a", batches, 0, POLICY)
    acknowledge(partition, "a", 0, 9, AckType.ACCEPT)


def test_offsets_that_were_never_acquired_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        acknowledge(SharePartition(0), "a", 0, 0, AckType.ACCEPT)


def test_an_acknowledgement_below_the_start_is_ignored() -> None:
    partition = SharePartition(0)
    acquire_all(partition, count=2)
    acknowledge(partition, "a", 0, 9, AckType.ACCEPT)
    acknowledge(partition, "b", 0, 9, AckType.ACCEPT)
    assert partition.start_offset == 10


@pytest.mark.parametrize(
    "batches",
    [
        [AckBatch(3, 2, (1,))],
        [AckBatch(0, 5, (1,)), AckBatch(5, 6, (1,))],
        [AckBatch(0, 1, ())],
        [AckBatch(0, 2, (1, 1))],
        [AckBatch(0, 0, (4,))],
        [AckBatch(0, 0, (-1,))],
        [AckBatch(-5, 0, (1,))],
    ],
)
def test_contradicting_batches_are_refused(batches: list[AckBatch]) -> None:
    with pytest.raises(InvalidRequest):
        check_batches(batches, may_renew=False)


def test_a_lock_that_is_renewed_ends_later_and_does_not_fill_the_heap() -> None:
    partition = SharePartition(0)
    acquire_all(partition)
    for now_ms in range(5_000):
        acknowledge(partition, "a", 0, 9, AckType.RENEW, now_ms % 900)
    assert len(partition._deadlines) < 1_100
    assert partition.tick(1_000, POLICY) == []
    assert partition.tick(5_000, POLICY) == [StateBatch(0, 9, AVAILABLE, 1)]


def test_a_record_that_fails_too_often_is_archived() -> None:
    partition = SharePartition(0)
    for now_ms in (0, 2_000, 4_000):
        assert acquire_all(partition, now_ms=now_ms)
        changed = partition.tick(now_ms + 1_000, POLICY)
    assert changed == [StateBatch(0, 9, ARCHIVED, 3)]
    assert partition.start_offset == 10


def test_a_client_that_closes_has_not_used_its_records() -> None:
    partition = SharePartition(0)
    acquire_all(partition)
    assert partition.release("a", 0, POLICY, was_delivered=False) == [StateBatch(0, 9, AVAILABLE, 0)]
    assert acquire_all(partition, "b") == [AcquiredRange(0, 9, 1)]
    assert partition.release("b", 0, POLICY) == [StateBatch(0, 9, AVAILABLE, 1)]


def test_a_released_record_waits_for_its_delay_without_blocking_others() -> None:
    policy = DeliveryPolicy(lock_ms=1_000, deliveries_max=3, backoff=RetryBackoff((100, 5_000)))
    partition = SharePartition(0)
    partition.acquire("a", batches_of(0, 1), 0, 0, policy, records_max=10)
    partition.commit(partition.settle("a", [AckBatch(0, 4, (AckType.RELEASE,))], 0, policy))
    assert partition.next_offset() == 10
    assert partition.next_deadline_ms() == 100
    partition.tick(100, policy)
    assert partition.acquire("b", batches_of(0, 1), 0, 100, policy, records_max=10) == [AcquiredRange(0, 4, 2)]
    partition.commit(partition.settle("b", [AckBatch(0, 4, (AckType.RELEASE,))], 100, policy))
    partition.tick(5_099, policy)
    assert partition.next_offset() == 10
    partition.tick(5_100, policy)
    assert partition.next_offset() == 0


def test_records_that_the_log_has_deleted_are_not_delivered() -> None:
    partition = SharePartition(0)
    acquire_all(partition, count=2)
    acknowledge(partition, "a", 0, 4, AckType.RELEASE)
    partition.trim(12)
    assert partition.start_offset == 5
    assert partition.release("a", 0, POLICY) == [StateBatch(5, 19, AVAILABLE, 1)]
    partition.trim(100)
    assert partition.start_offset == partition.next_offset() == 100


def test_alternating_states_of_many_records_stay_fast_and_small() -> None:
    policy = DeliveryPolicy(locks_max=20_000)
    partition = SharePartition(0)
    partition.acquire("a", batches_of(0, 20, 1_000), 0, 0, policy, records_max=20_000)
    assert partition.in_flight == 20_000
    types = (AckType.ACCEPT, AckType.RELEASE) * 10_000
    partition.commit(partition.settle("a", [AckBatch(0, 19_999, types)], 0, policy))
    assert (partition.start_offset, partition.in_flight) == (1, 10_000)
    got = partition.acquire("b", batches_of(0, 20, 1_000), 1, 0, policy, records_max=20_000)
    assert sum(each.last - each.first + 1 for each in got) == 10_000
    partition.commit(
        partition.settle("b", [AckBatch(1, 1, (1,))] + [AckBatch(n, n, (1,)) for n in range(3, 20_000, 2)], 0, policy)
    )
    assert (partition.start_offset, partition.in_flight, len(list(partition.ranges()))) == (20_000, 0, 0)


@dataclass
class Expected:
    """What the model knows about one record."""

    state: DeliveryState = AVAILABLE
    deliveries: int = 0
    owner: str = ""
    until_ms: int = 0
    is_settling: bool = False


class ShareModel(RuleBasedStateMachine):
    """Compares every offset with the model after each step."""

    @initialize(delays=st.sampled_from([(), (100,), (300, 2_000)]))
    def begin(self, delays: tuple[int, ...]) -> None:
        self.policy = DeliveryPolicy(lock_ms=1_000, deliveries_max=3, locks_max=40, backoff=RetryBackoff(delays))
        self.partition = SharePartition(0)
        self.model: dict[int, Expected] = {}
        self.now_ms = 0
        self.settling: list[tuple[Settlement, dict[int, AckType]]] = []

    @rule(member=st.sampled_from(MEMBERS), count=st.integers(1, 4), limit=st.integers(1, 25), exact=st.booleans())
    def acquire(self, member: str, count: int, limit: int, exact: bool) -> None:
        free = [offset for offset, each in self.model.items() if each.state == AVAILABLE]
        start = self.partition.next_offset()
        assert start == min(free, default=max(self.model, default=-1) + 1)
        before = sum(each.state not in FINAL for each in self.model.values())
        got = self.partition.acquire(
            member,
            batches_of(start - start % 10, count),
            start,
            self.now_ms,
            self.policy,
            records_max=limit,
            is_exact=exact,
        )
        offsets = [offset for each in got for offset in range(each.first, each.last + 1)]
        assert len(offsets) <= (limit if exact else limit + 9)
        if free or before < self.policy.locks_max:
            assert offsets
        for each in got:
            for offset in range(each.first, each.last + 1):
                expected = self.model.setdefault(offset, Expected())
                assert expected.state == AVAILABLE
                assert each.deliveries == expected.deliveries + 1
                self.model[offset] = Expected(ACQUIRED, each.deliveries, member, self.now_ms + 1_000)
        for offset in range(self.partition.end_offset):
            self.model.setdefault(offset, Expected())

    @rule(member=st.sampled_from(MEMBERS), data=st.data(), durable=st.booleans())
    def settle(self, member: str, data: st.DataObject, durable: bool) -> None:
        end = self.partition.end_offset
        if not end:
            return
        first = data.draw(st.integers(0, end - 1))
        last = data.draw(st.integers(first, min(end - 1, first + 12)))
        types = data.draw(
            st.one_of(
                st.sampled_from([(1,), (2,), (3,), (4,), (0,)]),
                st.lists(st.integers(0, 4), min_size=last - first + 1, max_size=last - first + 1).map(tuple),
            )
        )
        each = {
            offset: AckType(types[0] if len(types) == 1 else types[offset - first]) for offset in range(first, last + 1)
        }
        live = {offset: kind for offset, kind in each.items() if offset >= self.partition.start_offset}
        owned = all(
            self.model[at].state == ACQUIRED and self.model[at].owner == member and not self.model[at].is_settling
            for at in live
        )
        try:
            settlement = self.partition.settle(member, [AckBatch(first, last, types)], self.now_ms, self.policy)
        except InvalidRecordState:
            assert not owned
            return
        assert owned
        for offset, kind in live.items():
            if kind is AckType.RENEW:
                self.model[offset].until_ms = self.now_ms + 1_000
            else:
                self.model[offset].is_settling = True
        pending: dict[int, AckType] = {offset: kind for offset, kind in live.items() if kind is not AckType.RENEW}
        self.settling.append((settlement, pending))
        self.settled_at = self.now_ms
        if durable:
            self.end_settlement(True)

    @precondition(lambda self: self.settling)
    @rule(is_durable=st.booleans())
    def end_settlement(self, is_durable: bool) -> None:
        settlement, kinds = self.settling.pop(0)
        if not is_durable:
            self.partition.roll_back(settlement)
            for offset in kinds:
                self.model[offset].is_settling = False
            return
        self.partition.commit(settlement)
        until = {at: ms for first, last, ms in settlement.delayed for at in range(first, last + 1)}
        for offset, kind in kinds.items():
            deliveries = self.model[offset].deliveries
            if kind is AckType.ACCEPT:
                self.model[offset] = Expected(ACKNOWLEDGED, deliveries)
            elif kind is AckType.RELEASE and deliveries < 3:
                self._free(offset, until.get(offset, 0))
            else:
                self.model[offset] = Expected(ARCHIVED, deliveries)

    @rule(by_ms=st.integers(0, 1_500))
    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.partition.tick(self.now_ms, self.policy)
        for offset, each in self.model.items():
            if each.until_ms > self.now_ms or each.is_settling:
                continue
            if each.state == WAITING:
                self._free(offset, 0)
            elif each.state == ACQUIRED:
                self._release(offset)
        assert self.partition.next_deadline_ms() > self.now_ms

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        self.partition.release(member, self.now_ms, self.policy)
        for offset, each in self.model.items():
            if each.owner == member and each.state == ACQUIRED and not each.is_settling:
                self._release(offset)

    def _release(self, offset: int) -> None:
        deliveries = self.model[offset].deliveries
        if deliveries >= 3:
            self.model[offset] = Expected(ARCHIVED, deliveries)
        else:
            delay_ms = self.policy.backoff.delay_ms(deliveries)
            self._free(offset, self.now_ms + delay_ms if delay_ms else 0)

    def _free(self, offset: int, until_ms: int) -> None:
        state = WAITING if until_ms else AVAILABLE
        self.model[offset] = Expected(state, self.model[offset].deliveries, until_ms=until_ms)

    @invariant()
    def is_as_expected(self) -> None:
        if not hasattr(self, "model"):
            return
        done = [offset for offset, each in self.model.items() if each.state not in FINAL]
        assert self.partition.start_offset == min(done, default=max(self.model, default=-1) + 1)
        seen = self.partition.start_offset
        for each in self.partition.ranges():
            assert each.first == seen
            seen = each.last + 1
            for offset in range(each.first, each.last + 1):
                expected = self.model[offset]
                assert each.state == expected.state
                if each.state not in FINAL:
                    assert (each.deliveries, each.owner, each.until_ms, each.is_settling) == (
                        expected.deliveries,
                        expected.owner,
                        expected.until_ms,
                        expected.is_settling,
                    )
        assert seen == max(self.model, default=-1) + 1
        assert self.partition.in_flight == len(done)


ShareModel.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestShareModel = ShareModel.TestCase
