"""What a coordinator remembers: typed keys and values, each an entry of the journal (`records.py` has their bytes).

What a live coordinator decides and what a starting one reads back are the same `GroupEntry`, applied by the same `replay`;
a value of None forgets the key.
"""

from typing import NamedTuple, TypeAlias
from uuid import UUID

Partitions: TypeAlias = frozenset[tuple[UUID, int]]
NO_PARTITIONS: Partitions = frozenset()


class OffsetKey(NamedTuple):
    """Key 1: one partition's offset of one group."""

    group: str
    topic: str
    partition: int


class StagedKey(NamedTuple):
    """Key 1000: an offset that becomes the group's when the producer's transaction commits."""

    producer_id: int
    group: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    """A committed offset. `expire_ms` is only set by very old clients; -1 means the broker's retention."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1
    expire_ms: int = -1


class GroupKey(NamedTuple):
    """Key 2: a classic group."""

    group: str


class MemberSnapshot(NamedTuple):
    """A member inside of a classic group's value."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A classic group at the end of a rebalance."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[MemberSnapshot, ...]


class ConsumerGroupKey(NamedTuple):
    """Key 3: a consumer group."""

    group: str


class ConsumerGroupValue(NamedTuple):
    """Its epoch, and a digest of the topics it subscribes to."""

    epoch: int
    topics_hash: int = 0


class ClassicMember(NamedTuple):
    """What a member of a consumer group that speaks the classic protocol says: see `mixed.py`."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberKey(NamedTuple):
    """Key 5: a member of a consumer group."""

    group: str
    member_id: str


class MemberValue(NamedTuple):
    """What a member says about itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMember | None = None


class TargetEpochKey(NamedTuple):
    """Key 6: the target assignment of a group."""

    group: str


class TargetEpochValue(NamedTuple):
    """The group epoch that the target assignment was made for."""

    epoch: int


class TargetKey(NamedTuple):
    """Key 7: the target assignment of a member."""

    group: str
    member_id: str


class TargetValue(NamedTuple):
    """The partitions that the member shall have in the end."""

    partitions: Partitions


class CurrentKey(NamedTuple):
    """Key 8: the current assignment of a member."""

    group: str
    member_id: str


class CurrentValue(NamedTuple):
    """Where the member is on its way to the target."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: Partitions
    revoking: Partitions


Key: TypeAlias = (
    OffsetKey | StagedKey | GroupKey | ConsumerGroupKey | MemberKey | TargetEpochKey | TargetKey | CurrentKey
)
Value: TypeAlias = (
    OffsetValue | GroupValue | ConsumerGroupValue | MemberValue | TargetEpochValue | TargetValue | CurrentValue
)


class GroupEntry(NamedTuple):
    """One record: a key and what is known of it now."""

    key: Key
    value: Value | None


def weight(entry: GroupEntry) -> int:
    """How many things an entry is made of: its encoding takes as long as that of so many offsets."""
    value = entry.value
    if isinstance(value, GroupValue):
        return 1 + len(value.members)
    if isinstance(value, MemberValue):
        return 1 + len(value.topic_names)
    if isinstance(value, TargetValue):
        return 1 + len(value.partitions)
    return 1 + len(value.assigned) + len(value.revoking) if isinstance(value, CurrentValue) else 1
