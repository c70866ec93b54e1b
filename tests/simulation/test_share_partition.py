"""A share partition whose leader, coordinator and consumers crash and pause, and whose acknowledgements get lost.

Consumers take records and acknowledge them, late or never. The leader dies, and the next one reads the state; the
coordinator dies and replays its compacted topic. In the end every record was accepted; no record whose acceptance was
answered was delivered again; and in the life of one leader no record had two live locks.
"""

from random import Random
from uuid import UUID

import pytest

from tidemill.model.errors import FencedLeaderEpoch, InvalidRecordState, InvalidRequest
from tidemill.shares.core.acknowledgements import AckBatch, AckType
from tidemill.shares.core.delivery_policy import DeliveryPolicy, RetryBackoff
from tidemill.shares.core.durable_state import DurableState, ShareKey, StateWrite
from tidemill.shares.core.record_ranges import DeliveryState
from tidemill.shares.core.share_partition import LogExtent, SharePartition, StateBatch
from tidemill.shares.core.state_records import SLOTS, decode_record, encode_write, snapshot_key, update_key

KEY = ShareKey("mailers", UUID(int=1), 0)
RECORDS = 120
STEPS_MAX = 20_000


class Coordinator:
    """The stored state, in a compacted topic."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.log: list[tuple[bytes, bytes]] = []
        self.snapshot(DurableState(0, 0))

    def snapshot(self, state: DurableState) -> None:
        self.state = state
        kept = StateWrite(state.state_epoch, state.leader_epoch, state.start_offset, state.batches())
        self.log.append((snapshot_key(KEY), encode_write(kept)))
        state.updates = 0

    def write(self, change: StateWrite) -> None:
        self.state.check(change)
        self.state.apply(change)
        if self.state.updates == SLOTS or self.random.random() < 0.02:
            self.snapshot(self.state)
            return
        self.log.append((update_key(KEY, self.state.updates), encode_write(change)))
        self.state.updates += 1

    def crash(self) -> None:
        if self.random.random() < 0.5:  # compact: the last record of each key, in order
            last = {key: at for at, (key, _) in enumerate(self.log)}
            self.log = [each for at, each in enumerate(self.log) if last[each[0]] == at]
        before = (self.state.start_offset, self.state.batches())
        for key, value in self.log:
            record = decode_record(key, value)
            assert record.write is not None
            if record.is_snapshot:
                self.state = DurableState(record.write.state_epoch, record.write.start_offset)
            self.state.apply(record.write)
            self.state.updates = 0 if record.is_snapshot else self.state.updates + 1
        assert (self.state.start_offset, self.state.batches()) == before


class World:
    """One leader at a time, its coordinator, and consumers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.policy = DeliveryPolicy(
            lock_ms=500,
            deliveries_max=1_000,
            locks_max=30,
            backoff=self.random.choice([RetryBackoff(), RetryBackoff((50,))]),
        )
        self.coordinator = Coordinator(self.random)
        self.now_ms, self.leader_epoch = 0, 0
        self.held: dict[str, set[int]] = {name: set() for name in "abc"}
        self.locks: dict[int, int] = {}
        self.accepted: set[int] = set()
        self.lead()

    def lead(self) -> None:
        self.leader_epoch += 1
        state = self.coordinator.state
        state.leader_epoch = self.leader_epoch
        self.partition = SharePartition(state.start_offset, state.batches(), state_epoch=state.state_epoch)
        self.partition.delay(self.now_ms, self.policy)
        self.locks.clear()

    def store(self, batches: list[StateBatch], leader_epoch: int = -1) -> None:
        epoch = self.leader_epoch if leader_epoch < 0 else leader_epoch
        self.coordinator.write(StateWrite(0, epoch, self.partition.start_offset, tuple(batches)))

    def take(self, member: str) -> None:
        start = self.partition.next_offset()
        extents = [
            LogExtent(at, min(at + 6, RECORDS - 1)) for at in range(start - start % 7, min(start + 20, RECORDS), 7)
        ]
        got = self.partition.acquire(
            member, extents, start, self.now_ms, self.policy, records_max=9, is_exact=self.random.random() < 0.5
        )
        offsets = {offset for each in got for offset in range(each.first, each.last + 1)}
        for offset in offsets:
            assert offset not in self.accepted, f"record {offset} was acknowledged, and is delivered again"
            assert self.locks.get(offset, 0) <= self.now_ms, f"record {offset} has two live locks"
            self.locks[offset] = self.now_ms + self.policy.lock_ms
        if self.random.random() < 0.9:  # otherwise the response is lost
            self.held[member] |= offsets

    def acknowledge(self, member: str) -> None:
        offset = self.random.choice(sorted(self.held[member]))
        kind = self.random.choices([AckType.ACCEPT, AckType.RELEASE], [4, 1])[0]
        self.held[member].discard(offset)
        try:
            settlement = self.partition.settle(member, [AckBatch(offset, offset, (kind,))], self.now_ms, self.policy)
        except (InvalidRecordState, InvalidRequest):  # another leader does not know of the lock
            return
        if self.random.random() < 0.1:
            self.partition.roll_back(settlement)
            return
        self.store(settlement.batches)
        if self.random.random() < 0.1:  # the leader dies between the write and the response
            self.lead()
            return
        self.partition.commit(settlement)
        if kind is AckType.ACCEPT:
            self.accepted.add(offset)
        else:
            self.locks.pop(offset, None)

    def crash(self) -> None:
        old = self.leader_epoch
        self.lead()
        with pytest.raises(FencedLeaderEpoch):  # the old leader still runs, and may not write
            self.store([StateBatch(0, RECORDS, DeliveryState.ACKNOWLEDGED, 0)], old)

    def step(self) -> None:
        self.now_ms += self.random.choice([0, 1, 5, 20, 700 if self.random.random() < 0.05 else 0])
        changed = self.partition.tick(self.now_ms, self.policy)
        if changed and self.random.random() < 0.8:
            self.store(changed)
        member = self.random.choice("abc")
        luck = self.random.random()
        if luck < 0.01:
            self.crash()
        elif luck < 0.02:
            self.coordinator.crash()
        elif luck < 0.04:  # the session of a member ends; its process may still acknowledge
            self.partition.release(member, self.now_ms, self.policy)
            self.locks.clear()
        elif self.held[member] and luck < 0.7:
            self.acknowledge(member)
        else:
            self.take(member)


@pytest.mark.parametrize("seed", range(8))
def test_records_are_neither_lost_nor_delivered_after_their_acknowledgement(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS_MAX):
        world.step()
        if world.partition.start_offset == RECORDS:
            break
    assert world.partition.start_offset == RECORDS, (
        f"seed {seed}: records from {world.partition.start_offset} on are lost"
    )
    world.coordinator.crash()
    assert world.coordinator.state.start_offset <= RECORDS
