"""Fetch requests of this client: one partition, whose records stay views into the received frame."""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from tidemill.client.kafka.apis import FETCH
from tidemill.client.kafka.protocol import Answer, Request
from tidemill.model.errors import KafkaError, ProtocolViolation, of_code
from tidemill.model.topics import TopicPartition
from tidemill.records.header import iter_headers
from tidemill.wire.kafka.cursor import read_count, read_string
from tidemill.wire.kafka.fetch import FLEXIBLE_FROM, SESSIONS_FROM
from tidemill.wire.kafka.reader import ItemBudget, skip_tags
from tidemill.wire.kafka.varint import read_uvarint, uvarint

FETCH_BYTES = 4 * 1024 * 1024
FETCH_WAIT_MS = 500
_LOG_START_FROM = 5
_LEADER_EPOCH_FROM = 9
_RACK_FROM = 11
_CONSUMER = -1  # the replica id of clients
_LIMITS = Struct(">iiiib")
_NO_SESSION = Struct(">ii").pack(0, -1)
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_ABORTED = Struct(">qq")
_HEAD = Struct(">ihqq")
_HEAD_START = Struct(">ihqqq")
_TOPIC_BYTES_MIN = 2
_TOPICS_AND_PARTITIONS = 2
_PARTITION_BYTES_MIN = _HEAD.size


class FetchPosition(NamedTuple):
    """The offset to fetch from, and the limits of the response."""

    offset: int
    max_bytes: int = FETCH_BYTES
    committed: bool = False
    max_wait_ms: int = FETCH_WAIT_MS
    min_bytes: int = 1


class FetchedBatches(NamedTuple):
    """The batches of a partition (the last one may be incomplete), and the offsets of its log.

    `next_offset` follows the last whole batch. It is the requested offset when there is none. `aborted` lists the
    aborted transactions (producer id, first offset), whose records a read_committed reader leaves out.
    """

    records: memoryview
    aborted: tuple[tuple[int, int], ...]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    next_offset: int


def fetch_request(partition: TopicPartition, wanted: FetchPosition) -> Request:
    """The request for one partition, outside of any fetch session."""

    def write(version: int) -> list[bytes | bytearray | memoryview]:
        return [_write(version, partition, wanted)]

    return Request(FETCH, write)


def _write(version: int, partition: TopicPartition, wanted: FetchPosition) -> bytearray:
    flexible = version >= FLEXIBLE_FROM
    one = b"\x02" if flexible else b"\0\0\0\x01"
    name = partition.topic.encode()
    out = bytearray(
        _LIMITS.pack(_CONSUMER, wanted.max_wait_ms, wanted.min_bytes, wanted.max_bytes, int(wanted.committed))
    )
    if version >= SESSIONS_FROM:
        out += _NO_SESSION
    out += one + (uvarint(len(name) + 1) if flexible else _INT16.pack(len(name))) + name + one
    epoch = "i" if version >= _LEADER_EPOCH_FROM else ""
    fetched = "i" if flexible else ""
    start = "q" if version >= _LOG_START_FROM else ""
    unknown = [-1] * len(fetched + start)
    form = Struct(f">i{epoch}q{fetched}{start}i")
    out += form.pack(partition.partition, *[-1] * len(epoch), wanted.offset, *unknown, wanted.max_bytes)
    if flexible:
        out += b"\0\0"
    if version >= SESSIONS_FROM:
        out += b"\x01" if flexible else b"\0\0\0\0"  # no forgotten topics
    if version >= _RACK_FROM:
        out += b"\x01" if flexible else b"\0\0"
    if flexible:
        out.append(0)
    return out


def fetched(answer: Answer, wanted: FetchPosition) -> FetchedBatches | KafkaError:
    """The batches of the partition, or its error."""
    try:
        return _read(answer.body, answer.version, wanted.offset)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise ProtocolViolation(f"the Fetch response is malformed: {error}") from None


def _read(body: memoryview, version: int, offset: int) -> FetchedBatches | KafkaError:
    flexible = version >= FLEXIBLE_FROM
    position = 4  # throttle time: the broker has already waited
    if version >= SESSIONS_FROM:
        code = _INT16.unpack_from(body, position)[0]
        if code:
            return of_code(code)
        position += 6
    budget = ItemBudget(_TOPICS_AND_PARTITIONS)
    topics, position = read_count(body, position, _TOPIC_BYTES_MIN, budget, flexible=flexible)
    if topics != 1:
        raise ProtocolViolation(f"the Fetch response has {topics} topics instead of 1")
    _, position = read_string(body, position, flexible=flexible)
    partitions, position = read_count(body, position, _PARTITION_BYTES_MIN, budget, flexible=flexible)
    if partitions != 1:
        raise ProtocolViolation(f"the Fetch response has {partitions} partitions instead of 1")
    head = _HEAD_START if version >= _LOG_START_FROM else _HEAD
    _, code, high_watermark, stable, *start = head.unpack_from(body, position)
    position += head.size
    aborted, position = _read_aborted(body, position, flexible=flexible)
    if version >= _RACK_FROM:
        position += 4  # the preferred replica
    records = _read_records(body, position, flexible=flexible)
    if code:
        return of_code(code)
    following = offset
    for _, header in iter_headers(records, partial_ok=True):
        following = max(following, header.next_offset)
    return FetchedBatches(records, aborted, high_watermark, stable, start[0] if start else -1, following)


def _read_aborted(body: memoryview, position: int, *, flexible: bool) -> tuple[tuple[tuple[int, int], ...], int]:
    count, position = read_count(body, position, _ABORTED.size, ItemBudget(), flexible=flexible)
    aborted = []
    for _ in range(count):
        producer_id, first_offset = _ABORTED.unpack_from(body, position)
        aborted.append((producer_id, first_offset))
        position += _ABORTED.size
        if flexible:
            position = skip_tags(body, position)
    return tuple(aborted), position


def _read_records(body: memoryview, position: int, *, flexible: bool) -> memoryview:
    if flexible:
        size, position = read_uvarint(body, position)
        size -= 1
    else:
        size = _INT32.unpack_from(body, position)[0]
        position += 4
    end = position + max(size, 0)
    if end > len(body):
        raise ProtocolViolation(f"the Fetch response has an invalid size of records: {size} bytes")
    return body[position:end]
