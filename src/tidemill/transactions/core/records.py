"""The journal's bytes: the records of Kafka's `__transaction_state`, so that Kafka's own tools can read them.

A key is version 0: the transactional id. A value is version 1 (written) or 0 (also read): the newest state of that id,
whole; no value at all forgets the id. Version 1 ends with tagged fields, which readers skip when they do not know
them; `LAST_EPOCH` is such a field of our own. Kafka does not keep that epoch and so takes a retry for a zombie
after a restart of the broker.
"""

import struct
from collections import defaultdict
from struct import Struct

from tidemill.model.errors import CorruptMessage
from tidemill.model.topics import TopicPartition
from tidemill.transactions.core.state import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    Transaction,
    TransactionStatus,
)

KEY_VERSION = 0
VALUE_VERSION = 1

TAG_PREVIOUS_PRODUCER_ID = 0
TAG_NEXT_PRODUCER_ID = 1
TAG_CLIENT_VERSION = 2
TAG_LAST_EPOCH = 10_000

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")
_TAGS = {
    TAG_PREVIOUS_PRODUCER_ID: _INT64,
    TAG_NEXT_PRODUCER_ID: _INT64,
    TAG_CLIENT_VERSION: _INT16,
    TAG_LAST_EPOCH: _INT16,
}
_DEFAULTS = {
    TAG_PREVIOUS_PRODUCER_ID: NO_PRODUCER_ID,
    TAG_NEXT_PRODUCER_ID: NO_PRODUCER_ID,
    TAG_CLIENT_VERSION: 0,
    TAG_LAST_EPOCH: NO_EPOCH,
}


def write_key(transactional_id: str) -> bytes:
    """The key that every record of this id has."""
    name = transactional_id.encode()
    return _INT16.pack(KEY_VERSION) + _INT16.pack(len(name)) + name


def read_key(key: bytes | None) -> str | None:
    """The transactional id, or None for a key of a kind that is not known here."""
    if key is None or len(key) < 4:
        raise CorruptMessage("a transaction record without a whole key")
    if _INT16.unpack_from(key)[0] != KEY_VERSION:
        return None
    return _RecordReader(key, 2).text(compact=False)


def write_value(known: Transaction) -> bytes:
    """The state of one transactional id, in version 1."""
    producer_id, epoch = known.identity
    out = bytearray(_HEAD.pack(VALUE_VERSION, producer_id, epoch, known.timeout_ms, known.state))
    _write_partitions(out, known)
    out += _TIMES.pack(known.updated_ms, known.started_ms)
    tags = {
        TAG_PREVIOUS_PRODUCER_ID: known.last.producer_id,
        TAG_NEXT_PRODUCER_ID: known.next_producer_id,
        TAG_CLIENT_VERSION: known.client_version,
        TAG_LAST_EPOCH: known.last.epoch,
    }
    told = {tag: value for tag, value in tags.items() if value != _DEFAULTS[tag]}
    _write_varint(out, len(told))
    for tag, value in told.items():
        _write_varint(out, tag)
        _write_varint(out, _TAGS[tag].size)
        out += _TAGS[tag].pack(value)
    return bytes(out)


def read_value(transactional_id: str, value: bytes) -> Transaction:
    """The state that a journal value of version 0 or 1 holds."""
    try:
        version, producer_id, epoch, timeout_ms, status = _HEAD.unpack_from(value)
        if version not in {0, VALUE_VERSION}:
            raise CorruptMessage(f"a transaction record of version {version}")
        reader = _RecordReader(value, _HEAD.size)
        partitions = _read_partitions(reader, compact=version > 0)
        updated_ms, started_ms = reader.take(_TIMES)
        tags = _read_tags(reader) if version > 0 else _DEFAULTS
        return Transaction(
            transactional_id,
            ProducerIdAndEpoch(producer_id, epoch),
            timeout_ms=timeout_ms,
            updated_ms=updated_ms,
            last=ProducerIdAndEpoch(tags[TAG_PREVIOUS_PRODUCER_ID], tags[TAG_LAST_EPOCH]),
            next_producer_id=tags[TAG_NEXT_PRODUCER_ID],
            state=TransactionStatus(status),
            partitions=partitions,
            started_ms=started_ms,
            client_version=tags[TAG_CLIENT_VERSION],
        )
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptMessage(f"the transaction record of {transactional_id!r} cannot be read") from error


def _write_partitions(out: bytearray, known: Transaction) -> None:
    if known.state is TransactionStatus.EMPTY:
        _write_varint(out, 0)
        return
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(known.partitions):
        by_topic[topic].append(index)
    _write_varint(out, len(by_topic) + 1)
    for topic, indexes in by_topic.items():
        name = topic.encode()
        _write_varint(out, len(name) + 1)
        out += name
        _write_varint(out, len(indexes) + 1)
        for index in indexes:
            out += _INT32.pack(index)
        _write_varint(out, 0)


def _read_partitions(reader: "_RecordReader", *, compact: bool) -> frozenset[TopicPartition]:
    found = set()
    for _ in range(reader.count(compact=compact)):
        topic = reader.text(compact=compact)
        for _ in range(reader.count(compact=compact)):
            found.add(TopicPartition(topic, reader.take(_INT32)[0]))
        if compact:
            _read_tags(reader)
    return frozenset(found)


def _read_tags(reader: "_RecordReader") -> dict[int, int]:
    tags = dict(_DEFAULTS)
    for _ in range(reader.varint()):
        tag, size = reader.varint(), reader.varint()
        if tag in _TAGS and size == _TAGS[tag].size:
            tags[tag] = reader.take(_TAGS[tag])[0]
        else:
            reader.skip(size)
    return tags


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


class _RecordReader:
    """A place in a record's bytes. Counts are checked against what is left, so that no bytes can ask for memory."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def take(self, form: Struct) -> tuple[int, ...]:
        values = form.unpack_from(self._data, self._position)
        self._position += form.size
        return values

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def count(self, *, compact: bool) -> int:
        count = self.varint() - 1 if compact else self.take(_INT32)[0]
        if count > len(self._data) - self._position:
            raise ValueError("more entries than bytes")
        return max(count, 0)

    def text(self, *, compact: bool) -> str:
        size = self.varint() - 1 if compact else self.take(_INT16)[0]
        start = self._position
        self.skip(size)
        return self._data[start : self._position].decode()

    def skip(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self._position:
            raise ValueError("a field that is longer than the record")
        self._position += size
