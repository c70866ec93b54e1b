"""Reads Fetch requests and writes the responses (versions 4 to 17). Records are sent as views, without a copy."""

from collections.abc import Sequence
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple
from uuid import UUID

from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.cursor import Frame, TopicKey, read_count, read_string, read_topic
from tidemill.wire.kafka.reader import TAGS_MAX, ItemBudget, skip_tags
from tidemill.wire.kafka.varint import read_uvarint, uvarint

PARTITIONS_MAX = 50_000
"""The largest number of topics and partitions in one request."""
FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13
SESSIONS_FROM = 7
_LEADER_EPOCH_FROM = 9
_RACK_FROM = 11
_REPLICA_STATE_FROM = 15
_REPLICA_STATE_TAG = 1
_TOPIC_BYTES_MIN = 3
_LIMITS = Struct(">iiib")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_SESSION = Struct(">ii")
_DIVERGING = Struct(">BBBiqB")  # one tagged field, its number, its size; epoch, end offset, no tagged fields


class FetchPartition(NamedTuple):
    """A request for one partition. A replica also sends the epoch of its last record."""

    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int
    last_epoch: int = -1


class FetchRequest(NamedTuple):
    """A consumer's or replica's request."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    committed: bool
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[FetchPartition]]]
    forgotten: list[tuple[TopicKey, list[int]]]


class FetchOutcome(NamedTuple):
    """The result of one partition. `aborted` is None unless the reader requested read_committed.

    `diverging` is for a replica whose log differs: the last epoch that both logs have, and where it ends here.
    """

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    records: Sequence[bytes | bytearray | memoryview] = ()
    records_size: int = 0
    diverging: tuple[int, int] | None = None


@cache
def _partition_form(version: int) -> Struct:
    # partition, [leader epoch], offset, [last fetched epoch], [log start], max bytes
    epoch = "i" if version >= _LEADER_EPOCH_FROM else ""
    fetched = "i" if version >= FLEXIBLE_FROM else ""
    start = "q" if version >= 5 else ""
    return Struct(f">i{epoch}q{fetched}{start}i")


@cache
def _outcome_form(version: int) -> Struct:
    return Struct(">ihqqq" if version >= 5 else ">ihqq")


def read_fetch(frame: Frame, position: int, version: int, items_max: int = PARTITIONS_MAX) -> FetchRequest:
    """Return the request whose body starts at `position`."""
    try:
        return _read(bytes(frame), position, version, ItemBudget(items_max))
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"Fetch is malformed: {error}") from None


def _read(data: bytes, position: int, version: int, budget: ItemBudget) -> FetchRequest:
    flexible = version >= FLEXIBLE_FROM
    replica_id = -1
    if version < _REPLICA_STATE_FROM:
        replica_id = _INT32.unpack_from(data, position)[0]
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation = _LIMITS.unpack_from(data, position)
    position += _LIMITS.size
    session_id, session_epoch = 0, -1
    if version >= SESSIONS_FROM:
        session_id, session_epoch = _SESSION.unpack_from(data, position)
        position += _SESSION.size
    topics, position = _read_topics(data, position, version, budget)
    forgotten: list[tuple[TopicKey, list[int]]] = []
    if version >= SESSIONS_FROM:
        forgotten, position = _read_forgotten(data, position, version, budget)
    if version >= _RACK_FROM:
        _, position = read_string(data, position, flexible=flexible)
    if version >= _REPLICA_STATE_FROM:
        replica_id = _replica_of_tags(data, position)
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation == 1, session_id, session_epoch, topics, forgotten
    )


def _read_topics(
    data: bytes, position: int, version: int, budget: ItemBudget
) -> tuple[list[tuple[TopicKey, list[FetchPartition]]], int]:
    flexible = version >= FLEXIBLE_FROM
    form = _partition_form(version)
    epochs = version >= _LEADER_EPOCH_FROM
    count, position = read_count(data, position, _TOPIC_BYTES_MIN, budget, flexible=flexible)
    topics = []
    for _ in range(count):
        topic, position = read_topic(data, position, flexible=flexible, by_id=version >= TOPIC_IDS_FROM)
        wanted, position = read_count(data, position, form.size, budget, flexible=flexible)
        partitions = []
        for _ in range(wanted):
            values = form.unpack_from(data, position)
            position += form.size
            if flexible:
                position = skip_tags(data, position)
            epoch, offset = (values[1], values[2]) if epochs else (-1, values[1])
            last_epoch = values[3] if flexible else -1
            partitions.append(FetchPartition(values[0], epoch, offset, values[-1], last_epoch))
        if flexible:
            position = skip_tags(data, position)
        topics.append((topic, partitions))
    return topics, position


def _read_forgotten(
    data: bytes, position: int, version: int, budget: ItemBudget
) -> tuple[list[tuple[TopicKey, list[int]]], int]:
    flexible = version >= FLEXIBLE_FROM
    count, position = read_count(data, position, _TOPIC_BYTES_MIN, budget, flexible=flexible)
    forgotten = []
    for _ in range(count):
        topic, position = read_topic(data, position, flexible=flexible, by_id=version >= TOPIC_IDS_FROM)
        indexes, position = read_count(data, position, 4, budget, flexible=flexible)
        partitions = list(Struct(f">{indexes}i").unpack_from(data, position))
        position += 4 * indexes
        if flexible:
            position = skip_tags(data, position)
        forgotten.append((topic, partitions))
    return forgotten, position


def _replica_of_tags(data: bytes, position: int) -> int:
    count, position = read_uvarint(data, position)
    if count > TAGS_MAX:
        raise ProtocolViolation(f"the number of tagged fields, {count}, is invalid")
    replica_id = -1
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if tag == _REPLICA_STATE_TAG:
            replica_id = _INT32.unpack_from(data, position)[0]
        position += size
    return replica_id


def write_fetch(
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[FetchOutcome]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
) -> list[bytes | bytearray | memoryview]:
    """Return the body of the response, as buffers in order."""
    flexible = version >= FLEXIBLE_FROM
    out = bytearray(4)
    buffers: list[bytes | bytearray | memoryview] = []
    if version >= SESSIONS_FROM:
        out += _INT16.pack(error_code) + _INT32.pack(session_id)
    out += _count(len(topics), flexible=flexible)
    for topic, outcomes in topics:
        out += _topic(topic, flexible=flexible)
        out += _count(len(outcomes), flexible=flexible)
        for outcome in outcomes:
            _write_outcome(out, version, outcome)
            if outcome.records_size:
                buffers += (out, *outcome.records)
                out = bytearray()
            if flexible:
                out += b"\0" if outcome.diverging is None else _DIVERGING.pack(1, 0, 13, *outcome.diverging, 0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    buffers.append(out)
    return buffers


def _write_outcome(out: bytearray, version: int, outcome: FetchOutcome) -> None:
    """Write everything of a partition up to its records."""
    form = _outcome_form(version)
    out += form.pack(*outcome[: 5 if version >= 5 else 4])
    flexible = version >= FLEXIBLE_FROM
    if outcome.aborted is None:
        out += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        out += _count(len(outcome.aborted), flexible=flexible)
        for producer_id, first_offset in outcome.aborted:
            out += producer_id.to_bytes(8, "big", signed=True) + first_offset.to_bytes(8, "big", signed=True)
            if flexible:
                out.append(0)
    if version >= _RACK_FROM:
        out += b"\xff\xff\xff\xff"
    out += uvarint(outcome.records_size + 1) if flexible else _INT32.pack(outcome.records_size)


def _count(count: int, *, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)


def _topic(topic: TopicKey, *, flexible: bool) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes
    raw = topic.encode()
    return (uvarint(len(raw) + 1) if flexible else _INT16.pack(len(raw))) + raw
