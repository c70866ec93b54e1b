"""The two blobs that consumers of a classic group exchange; the broker looks into them only where it must.

Layout (never flexible): a version of two bytes, then `topics`, `user_data`, and from version 1 what the member
owns. Later versions only append fields, so a reader takes what it knows and leaves the rest.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidemill.groups.core.fields import FieldReader, FieldWriter
from tidemill.model.topics import TopicPartition


class ConsumerSubscription(NamedTuple):
    """What a consumer says when it joins."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()


def read_subscription(blob: bytes) -> ConsumerSubscription | None:
    """A consumer's subscription; None when it is not one."""
    reader = FieldReader(blob)
    try:
        version = reader.int16()
        topics = tuple(reader.array(reader.string))
        reader.blob()
        owned = reader.array(lambda: (reader.string(), reader.array(reader.int32))) if version >= 1 else []
    except ValueError:
        return None
    if version < 0:
        return None
    return ConsumerSubscription(
        topics, tuple(TopicPartition(topic, index) for topic, indexes in owned for index in indexes)
    )


def write_subscription(topics: Iterable[str], owned: Iterable[TopicPartition] = ()) -> bytes:
    """A consumer's subscription (version 1)."""
    writer = FieldWriter(1)
    writer.array(sorted(topics), writer.string)
    writer.blob(b"")
    _write_partitions(writer, owned)
    return writer.done()


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """A consumer's assignment (version 0)."""
    writer = FieldWriter(0)
    _write_partitions(writer, partitions)
    writer.blob(b"")
    return writer.done()


def _write_partitions(writer: FieldWriter, partitions: Iterable[TopicPartition]) -> None:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)

    def write(item: tuple[str, list[int]]) -> None:
        writer.string(item[0])
        writer.array(item[1], writer.int32)

    writer.array(by_topic.items(), write)


def read_assignment(assignment: bytes) -> Mapping[str, list[int]]:
    """The partitions in a consumer's assignment by topic; nothing for no assignment. Raises ValueError if damaged."""
    if not assignment:
        return {}
    reader = FieldReader(assignment)
    reader.int16()
    return dict(reader.array(lambda: (reader.string(), reader.array(reader.int32))))
