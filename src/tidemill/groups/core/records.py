"""The records of `__consumer_offsets`, byte for byte as Kafka writes them, so that Kafka's own tools can read them.

The key of a record says whose state it is, and the value is the current state. A value of None deletes the key. The
first two bytes of a key are its type, the first two of a value its version. A running coordinator writes, and a
starting one reads, the same `GroupEntry` values; both apply them with the same `replay`.

| key | whose | values read | value written |
|---|---|---|---|
| 0, 1 | an offset of a group | 0-4 | 3 |
| 2 | a classic group | 0-4 | 3 |
| 3 | a consumer group: its epoch | 0 | 0 |
| 5 | a member: its subscription | 0 | 0 |
| 6 | the target assignment: its epoch | 0 | 0 |
| 7 | a member's target assignment | 0 | 0 |
| 8 | a member's current assignment | 0 | 0 |
| 10 | a member of a share group | 0 | 0 |
| 11 | a share group: its epoch | 0 | 0 |
| 12, 13 | the target assignment of a share group: its epoch; a member's part | 0 | 0 |
| 14 | the current assignment of a member of a share group | 0 | 0 |
| 15 | the partitions that have share state (without the names of topics) | 0 | 0 |
| 1000 | an offset staged by a transaction (Tidemill's own) | 0-4 | 3 |

Keys of other types (4 and 16 are caches of Kafka's, 9 and 17 and above belong to other kinds of groups) are skipped.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from tidemill.groups.core.entries import (
    NO_PARTITIONS,
    SHARE_KEYS,
    ClassicMember,
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentKey,
    CurrentValue,
    GroupEntry,
    GroupKey,
    GroupValue,
    Key,
    MemberKey,
    MemberSnapshot,
    MemberValue,
    OffsetKey,
    OffsetValue,
    Partitions,
    ShareCurrentKey,
    SharedTopicsKey,
    SharedTopicsValue,
    ShareGroupKey,
    ShareMemberKey,
    ShareTargetEpochKey,
    ShareTargetKey,
    StagedKey,
    TargetEpochKey,
    TargetEpochValue,
    TargetKey,
    TargetValue,
    Value,
)
from tidemill.groups.core.fields import FieldReader, FieldWriter

# The type of a key and the kinds of its fields; each kind names a method of the reader and the writer.
_FORMS: dict[type[Any], tuple[int, tuple[str, ...]]] = {
    OffsetKey: (1, ("string", "string", "int32")),
    GroupKey: (2, ("string",)),
    ConsumerGroupKey: (3, ("string",)),
    MemberKey: (5, ("string", "string")),
    TargetEpochKey: (6, ("string",)),
    TargetKey: (7, ("string", "string")),
    CurrentKey: (8, ("string", "string")),
    ShareMemberKey: (10, ("string", "string")),
    ShareGroupKey: (11, ("string",)),
    ShareTargetEpochKey: (12, ("string",)),
    ShareTargetKey: (13, ("string", "string")),
    ShareCurrentKey: (14, ("string", "string")),
    SharedTopicsKey: (15, ("string",)),
    StagedKey: (1000, ("int64", "string", "string", "int32")),
}
_KEYS: dict[int, type[Any]] = {number: kind for kind, (number, _) in _FORMS.items()} | {0: OffsetKey}
# The newest version of a value that can be read; 0 for all others.
_NEWEST: dict[type[Any], int] = {OffsetKey: 4, StagedKey: 4, GroupKey: 4}


def encode(entry: GroupEntry) -> tuple[bytes, bytes | None]:
    """Return the record's bytes."""
    key, value = encode_key(entry.key), entry.value
    if isinstance(entry.key, SHARE_KEYS) and value is not None:
        return key, _encode_share_value(value)
    return key, None if value is None else encode_value(value)


def encode_key(key: Key) -> bytes:
    """Encode a key: its type, then its fields."""
    number, forms = _FORMS[type(key)]
    writer = FieldWriter(number)
    for form, field in zip(forms, key, strict=True):
        getattr(writer, form)(field)
    return writer.done()


def encode_value(value: Value) -> bytes:
    """Encode a value in the version that this module writes."""
    match value:
        case OffsetValue():
            return _write_offset(value)
        case GroupValue():
            return _write_group(value)
        case ConsumerGroupValue(epoch, topics_hash):
            return _write_consumer_group(epoch, topics_hash)
        case MemberValue():
            return _write_member(value)
        case TargetEpochValue(epoch):
            writer = FieldWriter(0)
            writer.int32(epoch)
        case TargetValue(partitions):
            writer = FieldWriter(0)
            _write_partitions(writer, partitions)
        case CurrentValue():
            writer = FieldWriter(0)
            writer.int32(value.epoch)
            writer.int32(value.previous_epoch)
            writer.int8(value.state)
            _write_partitions(writer, value.assigned)
            _write_partitions(writer, value.revoking)
        case SharedTopicsValue(partitions):
            writer = FieldWriter(0)
            writer.compact_array((), writer.uuid)  # topics that are being initialized
            _write_partitions(writer, partitions, named=True)
            writer.compact_array((), writer.uuid)  # topics that are being deleted
    writer.tags()
    return writer.done()


def _encode_share_value(value: Value) -> bytes:
    """Encode a value of a share group, whose members have fewer fields than those of a consumer group."""
    writer = FieldWriter(0)
    match value:
        case ConsumerGroupValue(epoch, topics_hash):
            writer.int32(epoch)
            writer.int64(topics_hash)
        case MemberValue():
            writer.compact_string(value.rack_id)
            writer.compact_string(value.client_id)
            writer.compact_string(value.client_host)
            writer.compact_array(value.topic_names, writer.compact_string)
        case CurrentValue():
            writer.int32(value.epoch)
            writer.int32(value.previous_epoch)
            writer.int8(value.state)
            _write_partitions(writer, value.assigned)
        case _:
            return encode_value(value)
    writer.tags()
    return writer.done()


def decode(key: bytes, value: bytes | None) -> GroupEntry | None:
    """Decode a record; None for a kind that groups do not store. Raises ValueError for damaged records."""
    reader = FieldReader(key)
    kind = _KEYS.get(reader.int16())
    if kind is None:
        return None
    owner = kind(*(getattr(reader, form)() for form in _FORMS[kind][1]))
    if value is None:
        return GroupEntry(owner, None)
    body = FieldReader(value)
    version, newest = body.int16(), _NEWEST.get(kind, 0)
    if not 0 <= version <= newest:
        raise ValueError(f"value version {version} of {kind.__name__} is unknown; the newest known is {newest}")
    return GroupEntry(owner, _VALUES[kind](body, version))


def _write_offset(value: OffsetValue) -> bytes:
    dated = value.expire_ms >= 0  # only version 1 has a field for it
    writer = FieldWriter(1 if dated else 3)
    writer.int64(value.offset)
    if not dated:
        writer.int32(value.leader_epoch)
    writer.string(value.metadata)
    writer.int64(value.commit_ms)
    if dated:
        writer.int64(value.expire_ms)
    return writer.done()


def _read_offset(body: FieldReader, version: int) -> OffsetValue:
    flexible = version >= 4
    offset = body.int64()
    leader_epoch = body.int32() if version >= 3 else -1
    metadata = (body.compact_string() or "") if flexible else body.string()
    commit_ms = body.int64()
    return OffsetValue(offset, leader_epoch, metadata, commit_ms, body.int64() if version == 1 else -1)


def _write_group(value: GroupValue) -> bytes:
    writer = FieldWriter(3)
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    writer.int64(value.state_ms)

    def member(item: MemberSnapshot) -> None:
        writer.string(item.member_id)
        writer.string(item.instance_id)
        writer.string(item.client_id)
        writer.string(item.client_host)
        writer.int32(item.rebalance_timeout_ms)
        writer.int32(item.session_timeout_ms)
        writer.blob(item.subscription)
        writer.blob(item.assignment)

    writer.array(value.members, member)
    return writer.done()


def _read_group(body: FieldReader, version: int) -> GroupValue:
    flexible = version >= 4
    nullable = body.compact_string if flexible else body.nullable_string

    def text() -> str:
        return nullable() or ""

    def blob() -> bytes:
        return (body.compact_bytes() or b"") if flexible else body.blob()

    def member() -> MemberSnapshot:
        member_id, instance_id = text(), nullable() if version >= 3 else None
        client_id, client_host = text(), text()
        rebalance_ms = body.int32() if version >= 1 else -1
        session_ms = body.int32()
        subscription, assignment = blob(), blob()
        if flexible:
            body.tags()
        patience_ms = rebalance_ms if version >= 1 else session_ms
        return MemberSnapshot(
            member_id, instance_id, client_id, client_host, patience_ms, session_ms, subscription, assignment
        )

    protocol_type, generation = text(), body.int32()
    protocol, leader = nullable(), nullable()
    state_ms = body.int64() if version >= 2 else -1
    members = body.compact_array(member) if flexible else body.array(member)
    return GroupValue(protocol_type, generation, protocol, leader, state_ms, tuple(members))


def _write_consumer_group(epoch: int, topics_hash: int) -> bytes:
    writer = FieldWriter(0)
    writer.int32(epoch)
    writer.tags({0: topics_hash.to_bytes(8, "big", signed=True)} if topics_hash else None)
    return writer.done()


def _read_consumer_group(body: FieldReader, _version: int) -> ConsumerGroupValue:
    epoch = body.int32()
    return ConsumerGroupValue(epoch, int.from_bytes(body.tags().get(0, b""), "big", signed=True))


def _write_member(value: MemberValue) -> bytes:
    writer = FieldWriter(0)
    writer.compact_string(value.instance_id)
    writer.compact_string(value.rack_id)
    writer.compact_string(value.client_id)
    writer.compact_string(value.client_host)
    writer.compact_array(value.topic_names, writer.compact_string)
    writer.compact_string(value.topic_regex)
    writer.int32(value.rebalance_timeout_ms)
    writer.compact_string(value.server_assignor)
    writer.tags(None if value.classic is None else {0: _write_classic(value.classic)})
    return writer.done()


def _write_classic(classic: ClassicMember) -> bytes:
    writer = FieldWriter()
    writer.int8(1)  # marks a nullable structure as present
    writer.int32(classic.session_timeout_ms)

    def protocol(item: tuple[str, bytes]) -> None:
        writer.compact_string(item[0])
        writer.compact_bytes(item[1])
        writer.tags()

    writer.compact_array(classic.protocols, protocol)
    writer.tags()
    return writer.done()


def _read_classic(data: bytes | None) -> ClassicMember | None:
    body = FieldReader(data or b"\xff")
    if body.int8() < 0:
        return None

    def protocol() -> tuple[str, bytes]:
        name, metadata = body.compact_string() or "", body.compact_bytes() or b""
        body.tags()
        return name, metadata

    return ClassicMember(body.int32(), tuple(body.compact_array(protocol)))


def _read_member(body: FieldReader, _version: int) -> MemberValue:
    text = body.compact_string
    instance_id, rack_id, client_id, client_host = text(), text(), text() or "", text() or ""
    topics = tuple(name or "" for name in body.compact_array(text))
    regex, rebalance_ms, assignor = text(), body.int32(), text()
    classic = _read_classic(body.tags().get(0))
    return MemberValue(instance_id, rack_id, client_id, client_host, topics, regex, rebalance_ms, assignor, classic)


def _write_partitions(writer: FieldWriter, partitions: Partitions, *, named: bool = False) -> None:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(index)

    def topic(item: tuple[UUID, list[int]]) -> None:
        writer.uuid(item[0])
        if named:
            writer.compact_string("")
        writer.compact_array(item[1], writer.int32)
        writer.tags()

    writer.compact_array(by_topic.items(), topic)


def _read_partitions(body: FieldReader, *, named: bool = False) -> Partitions:
    def topic() -> list[tuple[UUID, int]]:
        topic_id = body.uuid()
        if named:
            body.compact_string()
        indexes = body.compact_array(body.int32)
        body.tags()
        return [(topic_id, index) for index in indexes]

    return frozenset(pair for pairs in body.compact_array(topic) for pair in pairs)


def _read_current(body: FieldReader, _version: int) -> CurrentValue:
    epoch, previous, state = body.int32(), body.int32(), body.int8()
    return CurrentValue(epoch, previous, state, _read_partitions(body), _read_partitions(body))


def _read_share_member(body: FieldReader, _version: int) -> MemberValue:
    text = body.compact_string
    rack_id, client_id, client_host = text(), text() or "", text() or ""
    topics = tuple(name or "" for name in body.compact_array(text))
    return MemberValue(None, rack_id, client_id, client_host, topics, None, -1, None)


def _read_share_current(body: FieldReader, _version: int) -> CurrentValue:
    epoch, previous, state = body.int32(), body.int32(), body.int8()
    return CurrentValue(epoch, previous, state, _read_partitions(body), NO_PARTITIONS)


def _read_shared(body: FieldReader, _version: int) -> SharedTopicsValue:
    starting, shared = _read_partitions(body, named=True), _read_partitions(body, named=True)
    return SharedTopicsValue(starting | shared)


_VALUES: dict[type[Any], Callable[[FieldReader, int], Value]] = {
    OffsetKey: _read_offset,
    StagedKey: _read_offset,
    GroupKey: _read_group,
    ConsumerGroupKey: _read_consumer_group,
    MemberKey: _read_member,
    TargetEpochKey: lambda body, _version: TargetEpochValue(body.int32()),
    TargetKey: lambda body, _version: TargetValue(_read_partitions(body)),
    CurrentKey: _read_current,
    ShareMemberKey: _read_share_member,
    ShareGroupKey: lambda body, _version: ConsumerGroupValue(body.int32(), body.int64()),
    ShareTargetEpochKey: lambda body, _version: TargetEpochValue(body.int32()),
    ShareTargetKey: lambda body, _version: TargetValue(_read_partitions(body)),
    ShareCurrentKey: _read_share_current,
    SharedTopicsKey: _read_shared,
}
