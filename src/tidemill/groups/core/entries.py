"""The state of a coordinator as typed keys and values; each pair is a journal entry (`records.py` encodes them).

A running coordinator writes, and a starting one reads, the same `GroupEntry` values. Both apply them with the same
`replay`. A value of None deletes the key.
"""

from typing import NamedTuple, TypeAlias
from uuid import UUID

Partitions: TypeAlias = frozenset[tuple[UUID, int]]
NO_PARTITIONS: Partitions = frozenset()


class OffsetKey(NamedTuple):
    """Key 1: the offset of one partition in one group."""

    group: str
    topic: str
    partition: int


class StagedKey(NamedTuple):
    """Key 1000: an offset that takes effect in the group when the producer's transaction commits."""

    producer_id: int
    group: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    """A committed offset. Only very old clients set `expire_ms`; -1 means the broker's retention."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1
    expire_ms: int = -1


class GroupKey(NamedTuple):
    """Key 2: a classic group."""

    group: str


class MemberSnapshot(NamedTuple):
    """A member inside a classic group's value."""

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
    """The epoch of a consumer group, and a digest of the topics it subscribes to."""

    epoch: int
    topics_hash: int = 0


class ClassicMember(NamedTuple):
    """The classic protocol details of a member of a consumer group: see `protocol_migration.py`."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberKey(NamedTuple):
    """Key 5: a member of a consumer group."""

    group: str
    member_id: str


class MemberValue(NamedTuple):
    """The details that a member sends about itself."""

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
    """The group epoch for which the target assignment was computed."""

    epoch: int


class TargetKey(NamedTuple):
    """Key 7: the target assignment of a member."""

    group: str
    member_id: str


class TargetValue(NamedTuple):
    """The partitions that the member gets in the end."""

    partitions: Partitions


class CurrentKey(NamedTuple):
    """Key 8: the current assignment of a member."""

    group: str
    member_id: str


class CurrentValue(NamedTuple):
    """The progress of the member towards the target."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: Partitions
    revoking: Partitions


class ShareMemberKey(MemberKey):
    """Key 10: a member of a share group."""

    __slots__ = ()


class ShareGroupKey(ConsumerGroupKey):
    """Key 11: a share group."""

    __slots__ = ()


class ShareTargetEpochKey(TargetEpochKey):
    """Key 12: the target assignment of a share group."""

    __slots__ = ()


class ShareTargetKey(TargetKey):
    """Key 13: the target assignment of a member of a share group."""

    __slots__ = ()


class ShareCurrentKey(CurrentKey):
    """Key 14: the current assignment of a member of a share group."""

    __slots__ = ()


class SharedTopicsKey(NamedTuple):
    """Key 15: the partitions of a share group that have share state."""

    group: str


class SharedTopicsValue(NamedTuple):
    """The partitions whose share state was created."""

    partitions: Partitions


ConsumerKey: TypeAlias = ConsumerGroupKey | MemberKey | TargetEpochKey | TargetKey | CurrentKey | SharedTopicsKey
"""The keys of consumer groups and share groups."""
SHARE_KEYS = (ShareMemberKey, ShareGroupKey, ShareTargetEpochKey, ShareTargetKey, ShareCurrentKey, SharedTopicsKey)
Key: TypeAlias = OffsetKey | StagedKey | GroupKey | ConsumerKey
Value: TypeAlias = (
    OffsetValue
    | GroupValue
    | ConsumerGroupValue
    | MemberValue
    | TargetEpochValue
    | TargetValue
    | CurrentValue
    | SharedTopicsValue
)


class GroupEntry(NamedTuple):
    """One record: a key and its current value."""

    key: Key
    value: Value | None


def weight(entry: GroupEntry) -> int:
    """Return the size of an entry, in units of one offset's encoding time."""
    value = entry.value
    if isinstance(value, GroupValue):
        return 1 + len(value.members)
    if isinstance(value, MemberValue):
        return 1 + len(value.topic_names)
    if isinstance(value, TargetValue | SharedTopicsValue):
        return 1 + len(value.partitions)
    return 1 + len(value.assigned) + len(value.revoking) if isinstance(value, CurrentValue) else 1
