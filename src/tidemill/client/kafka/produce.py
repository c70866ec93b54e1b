"""Produce requests of this client: sealed batches, at most one per partition, sent without a copy."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, NamedTuple

from tidemill.client.kafka.apis import PRODUCE
from tidemill.client.kafka.protocol import Answer, Buffer, Request
from tidemill.model.errors import DuplicateSequence, KafkaError, of_code
from tidemill.model.topics import TopicPartition
from tidemill.wire.kafka.produce import FLEXIBLE_FROM
from tidemill.wire.kafka.varint import uvarint

ALL_REPLICAS = -1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ACKS = Struct(">hi")
_INT16 = Struct(">h")
_INT32 = Struct(">i")


class Produced(NamedTuple):
    """The result of one batch. The offset is -1 when the broker already had it or was asked not to answer."""

    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1


def produce_request(
    batches: Mapping[TopicPartition, Buffer], *, acks: int, timeout_ms: int, transactional_id: str | None
) -> Request:
    """The request with these batches."""

    def write(version: int) -> list[Buffer]:
        return _write(version, batches, acks, timeout_ms, transactional_id)

    return Request(PRODUCE, write, answered=acks != 0)


def _write(
    version: int, batches: Mapping[TopicPartition, Buffer], acks: int, timeout_ms: int, transactional_id: str | None
) -> list[Buffer]:
    flexible = version >= FLEXIBLE_FROM
    by_topic: dict[str, list[tuple[int, Buffer]]] = defaultdict(list)
    for partition, batch in batches.items():
        by_topic[partition.topic].append((partition.partition, batch))
    out = bytearray(_string(transactional_id, flexible=flexible))
    out += _ACKS.pack(acks, timeout_ms) + _count(len(by_topic), flexible=flexible)
    buffers: list[Buffer] = []
    for topic, parts in by_topic.items():
        out += _string(topic, flexible=flexible) + _count(len(parts), flexible=flexible)
        for index, batch in parts:
            out += _INT32.pack(index) + _count(len(batch), flexible=flexible)
            buffers += (out, batch)
            out = bytearray(b"\0" if flexible else b"")
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return [*buffers, out]


def _string(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = text.encode()
    return (uvarint(len(raw) + 1) if flexible else _INT16.pack(len(raw))) + raw


def _count(count: int, *, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)


def produced(answer: Answer) -> dict[TopicPartition, Produced | KafkaError]:
    """The result of each batch. A duplicate counts as written."""
    found: dict[TopicPartition, Produced | KafkaError] = {}
    for topic in answer.message().responses:
        for part in topic.partition_responses:
            found[TopicPartition(topic.name, part.index)] = _outcome(part)
    return found


def _outcome(part: Any) -> Produced | KafkaError:
    if part.error_code == DuplicateSequence.code:
        return Produced()
    if part.error_code:
        return of_code(part.error_code, getattr(part, "error_message", None) or "")
    appended = part.log_append_time
    appended_ms = -1 if appended is None else (appended - _EPOCH) // timedelta(milliseconds=1)
    return Produced(part.base_offset, appended_ms, getattr(part, "log_start_offset", -1))
