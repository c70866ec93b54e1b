"""The share coordinator: it keeps the stored state of share partitions in `__share_group_state`.

The leader of a journal partition coordinates the share partitions in it. A change is journaled, then applied, then
answered. Changes of one share partition run one after the other. `core/state_records.py` describes the records.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from uuid import UUID
from weakref import WeakValueDictionary

import structlog

from tidemill.model.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedLeaderEpoch,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    TidemillError,
    UnknownTopicOrPartition,
)
from tidemill.records.journal import Journal
from tidemill.shares.core.durable_state import DurableState, ShareKey, StateWrite
from tidemill.shares.core.state_records import (
    SLOTS,
    StateRecord,
    decode_record,
    encode_write,
    snapshot_key,
    update_key,
)
from tidemill.shares.interface import StoredState

EPOCH_BITS = 0x7FFFFFFF

log = structlog.get_logger("tidemill.shares")


class ShareCoordinator:
    """The share partitions that this broker coordinates."""

    def __init__(self, journal: Journal, new_epoch: Callable[[], int]) -> None:
        self._journal = journal
        self._new_epoch = new_epoch
        self._states: dict[int, dict[ShareKey, DurableState]] = {}
        self.led: Mapping[int, int] | None = None
        """The journal partitions that this broker leads, with their epochs; None before the start."""
        self._read_in: dict[int, int] = {}
        self._turns: WeakValueDictionary[ShareKey, asyncio.Lock] = WeakValueDictionary()
        self._suspects: set[ShareKey] = set()

    def start(self) -> None:
        """Do nothing: the broker calls `forget_topics`."""

    @property
    def loaded(self) -> Collection[int]:
        """The journal partitions that were read."""
        return self._states.keys()

    async def load(self, partition: int, epoch: int) -> None:
        """Read the share partitions of a journal partition that this broker leads since `epoch`."""
        states: dict[ShareKey, DurableState] = {}
        async for records in self._journal.replay(partition):
            for record in records:
                try:
                    _replay(states, decode_record(bytes(record.key or b""), record.value))
                except ValueError as error:
                    log.warning("share_record_unreadable", partition=partition, error=str(error))
        self._states[partition], self._read_in[partition] = states, epoch

    async def let_go(self, partitions: Iterable[int]) -> None:
        """Forget the share partitions that another broker coordinates now."""
        for partition in partitions:
            self._states.pop(partition, None)

    def partition_of(self, key: ShareKey) -> int:
        """The journal partition of a share partition."""
        return self._journal.partition_of(key.text)

    async def initialize(self, key: ShareKey, start_offset: int) -> None:
        """Create the state of a share partition, or replace it.

        Its epoch is a new one, also after a deletion, so that a leader that knows the old state cannot write.
        """
        async with self._turn(key):
            states = self._loaded(key)
            known = states.get(key)
            epoch, leader_epoch = self._new_epoch() & EPOCH_BITS, 0 if known is None else known.leader_epoch
            if known is not None and known.state_epoch == epoch:
                epoch = (epoch + 1) & EPOCH_BITS
            change = StateWrite(epoch, leader_epoch, start_offset, ())
            await self._append(key, [(snapshot_key(key), encode_write(change))])
            states[key] = _from_snapshot(change)

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        """The state, for the leader of the partition; earlier leaders can no longer write."""
        async with self._turn(key):
            state = self._known(key)
            state.check_leader(leader_epoch)
            if leader_epoch > state.leader_epoch:
                change = StateWrite(state.state_epoch, leader_epoch, state.start_offset, ())
                await self._store(key, state, change)
            return _stored(state)._replace(batches=state.batches())

    async def summary(self, key: ShareKey) -> StoredState:
        """The state without its batches."""
        return _stored(self._known(key))

    def stored(self) -> list[tuple[ShareKey, DurableState]]:
        """The share partitions that this broker coordinates; the caller changes nothing."""
        return [
            each
            for partition, states in self._states.items()
            if self._journal.leads(partition, self._read_in[partition])
            for each in states.items()
        ]

    async def write(self, key: ShareKey, change: StateWrite) -> None:
        """Store a change of the leader of the partition."""
        async with self._turn(key):
            state = self._known(key)
            state.check(change)
            await self._store(key, state, change)

    async def delete(self, key: ShareKey) -> None:
        """Delete the state of a share partition."""
        async with self._turn(key):
            states = self._loaded(key)
            state = states.get(key)
            if state is None:
                return
            slots = [(update_key(key, slot), None) for slot in range(state.updates)]
            await self._append(key, [(snapshot_key(key), None), *slots])
            states.pop(key, None)

    async def forget_topics(self, exists: Callable[[UUID], bool]) -> None:
        """Delete the state of topics that did not exist at two calls in a row."""
        missing = {key for states in self._states.values() for key in states if not exists(key.topic_id)}
        for key in missing & self._suspects:
            with suppress(TidemillError):  # another broker coordinates it now, or it is tried again
                await self.delete(key)
        self._suspects = missing

    async def _store(self, key: ShareKey, state: DurableState, change: StateWrite) -> None:
        if state.updates < SLOTS:
            await self._append(key, [(update_key(key, state.updates), encode_write(change))])
            state.updates += 1
            state.apply(change)
            return
        whole = StateWrite(
            state.state_epoch,
            change.leader_epoch,
            max(state.start_offset, change.start_offset),
            (*state.batches(), *change.batches),
        )
        await self._append(key, [(snapshot_key(key), encode_write(whole))])
        state.apply(change)
        state.updates = 0

    async def _append(self, key: ShareKey, records: list[tuple[bytes, bytes | None]]) -> None:
        try:
            await self._journal.append(self.partition_of(key), [*records])
        except (NotLeaderOrFollower, FencedLeaderEpoch, KafkaStorageError) as error:
            raise NotCoordinator(str(error)) from error
        except (NotEnoughReplicas, NotEnoughReplicasAfterAppend, RequestTimedOut) as error:
            raise CoordinatorNotAvailable(str(error)) from error

    def _known(self, key: ShareKey) -> DurableState:
        state = self._loaded(key).get(key)
        if state is None:
            raise UnknownTopicOrPartition(f"group {key.group_id[:60]!r} has no share state of this partition")
        return state

    def _loaded(self, key: ShareKey) -> dict[ShareKey, DurableState]:
        partition = self.partition_of(key)
        states = self._states.get(partition)
        if states is None:
            raise CoordinatorLoadInProgress if self.led is None or partition in self.led else NotCoordinator
        if not self._journal.leads(partition, self._read_in[partition]):
            raise NotCoordinator
        return states

    def _turn(self, key: ShareKey) -> asyncio.Lock:
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = asyncio.Lock()
        return turn


def _stored(state: DurableState) -> StoredState:
    return StoredState(state.state_epoch, state.leader_epoch, state.start_offset, finished=state.finished)


def _from_snapshot(change: StateWrite) -> DurableState:
    state = DurableState(change.state_epoch, change.start_offset, change.leader_epoch)
    state.apply(change)
    return state


def _replay(states: dict[ShareKey, DurableState], record: StateRecord) -> None:
    if record.write is None:
        if record.is_snapshot:
            states.pop(record.key, None)
    elif record.is_snapshot:
        states[record.key] = _from_snapshot(record.write)
    else:
        state = states.get(record.key)
        if state is not None:
            state.apply(record.write)
            state.updates += 1
