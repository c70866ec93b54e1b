"""Reads Produce requests without decoding the records, and writes the responses (versions 3 to 13)."""

from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple
from uuid import UUID

from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.cursor import Frame, TopicKey, read_count, read_string, read_topic
from tidemill.wire.kafka.reader import ItemBudget, skip_tags
from tidemill.wire.kafka.varint import read_uvarint, uvarint

PARTITIONS_MAX = 20_000
"""The largest number of topics and partitions in one request."""
FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13
_LOG_START_FROM = 5
_RECORD_ERRORS_FROM = 8
_TOPIC_BYTES_MIN = 3
_PARTITION_BYTES_MIN = 5
_ACKS = Struct(">hi")
_INT16 = Struct(">h").pack
_INT32 = Struct(">i")
_OUTCOME = Struct(">ihqq")
_OUTCOME_START = Struct(">ihqqq")
_NO_RECORD_ERRORS = b"\0\0\0\0\xff\xff"
_NO_RECORD_ERRORS_COMPACT = b"\x01\0"


class ProducePartition(NamedTuple):
    """The records for one partition, as a view into the frame."""

    partition: int
    records: memoryview | None


class ProduceRequest(NamedTuple):
    """A producer's request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[TopicKey, list[ProducePartition]]]


class ProduceOutcome(NamedTuple):
    """The result for the records of one partition."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None


def read_produce(frame: Frame, position: int, version: int, items_max: int = PARTITIONS_MAX) -> ProduceRequest:
    """Return the request whose body starts at `position`. Records are views into the frame."""
    try:
        return _read(memoryview(frame), position, version, ItemBudget(items_max))
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"Produce is malformed: {error}") from None


def _read(data: memoryview, position: int, version: int, budget: ItemBudget) -> ProduceRequest:
    flexible = version >= FLEXIBLE_FROM
    transactional_id, position = read_string(data, position, flexible=flexible)
    acks, timeout_ms = _ACKS.unpack_from(data, position)
    count, position = read_count(data, position + _ACKS.size, _TOPIC_BYTES_MIN, budget, flexible=flexible)
    topics = []
    for _ in range(count):
        topic, position = read_topic(data, position, flexible=flexible, by_id=version >= TOPIC_IDS_FROM)
        partitions, position = _read_partitions(data, position, budget, flexible=flexible)
        topics.append((topic, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_partitions(
    data: memoryview, position: int, budget: ItemBudget, *, flexible: bool
) -> tuple[list[ProducePartition], int]:
    count, position = read_count(data, position, _PARTITION_BYTES_MIN, budget, flexible=flexible)
    partitions = []
    for _ in range(count):
        index = _INT32.unpack_from(data, position)[0]
        if flexible:
            size, position = read_uvarint(data, position + 4)
            size -= 1
        else:
            size = _INT32.unpack_from(data, position + 4)[0]
            position += 8
        end = position + max(size, 0)
        if size < -1 or end > len(data):
            raise ProtocolViolation(f"records have the invalid length {size}")
        partitions.append(ProducePartition(index, data[position:end] if size >= 0 else None))
        position = skip_tags(data, end) if flexible else end
    return partitions, skip_tags(data, position) if flexible else position


def write_produce(version: int, topics: Sequence[tuple[TopicKey, Sequence[ProduceOutcome]]]) -> bytearray:
    """Return the body of the response."""
    flexible = version >= FLEXIBLE_FROM
    out = bytearray()
    out += _count(len(topics), flexible=flexible)
    for topic, outcomes in topics:
        out += _topic(topic, flexible=flexible)
        out += _count(len(outcomes), flexible=flexible)
        for outcome in outcomes:
            _write_outcome(out, version, outcome)
        if flexible:
            out.append(0)
    out += b"\0\0\0\0\0" if flexible else b"\0\0\0\0"
    return out


def _write_outcome(out: bytearray, version: int, outcome: ProduceOutcome) -> None:
    if version >= _LOG_START_FROM:
        out += _OUTCOME_START.pack(*outcome[:5])
    else:
        out += _OUTCOME.pack(*outcome[:4])
    if version < _RECORD_ERRORS_FROM:
        return
    flexible = version >= FLEXIBLE_FROM
    if not outcome.record_errors and outcome.error_message is None:
        out += _NO_RECORD_ERRORS_COMPACT if flexible else _NO_RECORD_ERRORS
        if flexible:
            out.append(0)
        return
    out += _count(len(outcome.record_errors), flexible=flexible)
    for batch_index, message in outcome.record_errors:
        out += _INT32.pack(batch_index) + _text(message, flexible=flexible)
        if flexible:
            out.append(0)
    out += _text(outcome.error_message, flexible=flexible)
    if flexible:
        out.append(0)


def _count(count: int, *, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)


def _text(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = text.encode()
    return (uvarint(len(raw) + 1) if flexible else _INT16(len(raw))) + raw


def _topic(topic: TopicKey, *, flexible: bool) -> bytes:
    return topic.bytes if isinstance(topic, UUID) else _text(topic, flexible=flexible)
