"""The records of `__share_group_state`: a snapshot for each share partition, and the updates after it.

The topic is compacted. A snapshot has one key; updates have a key for each of `SLOTS` slots, which are used again after
each snapshot. Compaction keeps the order, so every update that it keeps is either after the last snapshot, or is
replaced by it. A deletion is a snapshot without a value.
"""

from struct import Struct, error
from typing import NamedTuple
from uuid import UUID

from tidemill.shares.core.durable_state import ShareKey, StateWrite, readable_batches

SLOTS = 100
"""A snapshot is written instead of an update when so many updates were written after the last one."""
_SNAPSHOT, _UPDATE = 0, 1
_KEY = Struct(">hh16si")  # kind, slot, topic id, partition; then the group
_HEAD = Struct(">hiiqi")  # version, state epoch, leader epoch, start offset, number of batches
_BATCH = Struct(">qqbh")
_VERSION = 0


class StateRecord(NamedTuple):
    """One record, read: None deletes the share partition."""

    key: ShareKey
    is_snapshot: bool
    write: StateWrite | None


def snapshot_key(key: ShareKey) -> bytes:
    """The key of the snapshot of a share partition."""
    return _KEY.pack(_SNAPSHOT, 0, key.topic_id.bytes, key.partition) + key.group_id.encode()


def update_key(key: ShareKey, slot: int) -> bytes:
    """The key of an update in one slot."""
    return _KEY.pack(_UPDATE, slot, key.topic_id.bytes, key.partition) + key.group_id.encode()


def encode_write(write: StateWrite) -> bytes:
    """The value of a snapshot or an update."""
    out = bytearray(_HEAD.pack(_VERSION, write.state_epoch, write.leader_epoch, write.start_offset, len(write.batches)))
    for batch in write.batches:
        out += _BATCH.pack(*batch)
    return bytes(out)


def decode_record(key: bytes, value: bytes | None) -> StateRecord:
    """Read a record. Raises ValueError."""
    try:
        kind, _, topic_id, partition = _KEY.unpack_from(key)
        share_key = ShareKey(key[_KEY.size :].decode(), UUID(bytes=topic_id), partition)
        if kind not in {_SNAPSHOT, _UPDATE}:
            raise ValueError(f"record kind {kind} is unknown")
        return StateRecord(share_key, kind == _SNAPSHOT, None if value is None else _decode_write(value))
    except error as broken:
        raise ValueError(f"a record of a share partition is truncated: {broken}") from broken


def _decode_write(value: bytes) -> StateWrite:
    version, state_epoch, leader_epoch, start_offset, count = _HEAD.unpack_from(value)
    if version != _VERSION:
        raise ValueError(f"version {version} of a share state is unknown")
    if count < 0 or len(value) != _HEAD.size + count * _BATCH.size:
        raise ValueError(f"{count} batches do not fit into {len(value)} bytes")
    rows = list(_BATCH.iter_unpack(value[_HEAD.size :]))
    return StateWrite(state_epoch, leader_epoch, start_offset, readable_batches(rows))
