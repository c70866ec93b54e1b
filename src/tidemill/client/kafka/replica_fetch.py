"""Fetch requests of a follower: many partitions, by topic id, each with the end of the follower's log."""

from collections.abc import Iterable, Sequence
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple
from uuid import UUID

from tidemill.client.kafka.apis import ClientApi
from tidemill.client.kafka.protocol import Answer, Request
from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.cursor import read_count
from tidemill.wire.kafka.fetch import PARTITIONS_MAX
from tidemill.wire.kafka.reader import ItemBudget, skip_tags
from tidemill.wire.kafka.varint import read_uvarint, uvarint

REPLICA_FETCH = ClientApi(1, 13, 14)  # later versions have the replica id in another field
_LIMITS = Struct(">iiiib")
_NO_SESSION = Struct(">ii").pack(0, -1)
_WANTED = Struct(">iiqiqi")  # partition, leader epoch, offset, last epoch, log start, max bytes
_HEAD = Struct(">ihqqq")
_ABORTED_BYTES = 16
_PREFERRED_BYTES = 4
_EPOCH_END = Struct(">iq")
_TOP = Struct(">ihi")
_ID_BYTES = 16
_DIVERGING_TAG = 0


class PartWanted(NamedTuple):
    """A request for the records of one partition from `offset` on."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int
    max_bytes: int


class PartGiven(NamedTuple):
    """The response for one partition. `diverging` is the last epoch that both logs have, and its end offset there."""

    topic_id: UUID
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    records: memoryview


class ReplicaFetchLimits(NamedTuple):
    """How long the leader may wait for records, and how many bytes it may send."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int


def replica_fetch(node_id: int, wanted: Sequence[PartWanted], limits: ReplicaFetchLimits) -> Request:
    """The request of the broker with this id."""

    def write(version: int) -> list[bytes | bytearray | memoryview]:  # noqa: ARG001 - 13 and 14 have the same format
        out = bytearray(_LIMITS.pack(node_id, limits.max_wait_ms, limits.min_bytes, limits.max_bytes, 0))
        out += _NO_SESSION
        by_topic: dict[UUID, list[PartWanted]] = {}
        for part in wanted:
            by_topic.setdefault(part.topic_id, []).append(part)
        out += uvarint(len(by_topic) + 1)
        for topic_id, parts in by_topic.items():
            _write_topic(out, topic_id, parts)
        out += b"\x01\x01\0"  # no forgotten topics, no rack, no tagged fields
        return [out]

    return Request(REPLICA_FETCH, write)


def _write_topic(out: bytearray, topic_id: UUID, parts: Iterable[PartWanted]) -> None:
    rows = [
        _WANTED.pack(
            part.partition, part.leader_epoch, part.offset, part.last_epoch, part.log_start_offset, part.max_bytes
        )
        + b"\0"
        for part in parts
    ]
    out += topic_id.bytes + uvarint(len(rows) + 1) + b"".join(rows) + b"\0"


def given(answer: Answer) -> list[PartGiven] | int:
    """The response for each partition, or the error code of the whole request."""
    try:
        return _read(answer.body)
    except (struct_error, IndexError) as error:
        raise ProtocolViolation(f"the Fetch response to a replica is malformed: {error}") from None


def _read(body: memoryview) -> list[PartGiven] | int:
    _, code, _ = _TOP.unpack_from(body)
    if code:
        return int(code)
    position = _TOP.size
    budget = ItemBudget(PARTITIONS_MAX)
    found: list[PartGiven] = []
    topics, position = read_count(body, position, _ID_BYTES, budget, flexible=True)
    for _ in range(topics):
        topic_id = UUID(bytes=bytes(body[position : position + _ID_BYTES]))
        position += _ID_BYTES
        parts, position = read_count(body, position, _HEAD.size, budget, flexible=True)
        for _ in range(parts):
            part, position = _read_part(body, position, topic_id)
            found.append(part)
        position = skip_tags(body, position)
    return found


def _read_part(body: memoryview, position: int, topic_id: UUID) -> tuple[PartGiven, int]:
    index, code, high_watermark, _, log_start = _HEAD.unpack_from(body, position)
    position += _HEAD.size
    aborted, position = read_uvarint(body, position)
    for _ in range(max(aborted - 1, 0)):
        position = skip_tags(body, position + _ABORTED_BYTES)
    size, position = read_uvarint(body, position + _PREFERRED_BYTES)
    end = position + max(size - 1, 0)
    if end > len(body):
        raise ProtocolViolation(f"the Fetch response to a replica has an invalid size of records: {size} bytes")
    diverging, following = _read_tags(body, end)
    return PartGiven(topic_id, index, code, high_watermark, log_start, diverging, body[position:end]), following


def _read_tags(body: memoryview, position: int) -> tuple[tuple[int, int] | None, int]:
    count, position = read_uvarint(body, position)
    diverging = None
    for _ in range(count):
        tag, position = read_uvarint(body, position)
        size, position = read_uvarint(body, position)
        if tag == _DIVERGING_TAG:
            epoch, end_offset = _EPOCH_END.unpack_from(body, position)
            diverging = (epoch, end_offset)
        position += size
    return diverging, position
