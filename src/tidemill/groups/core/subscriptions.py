"""The two blobs that consumers of a classic group exchange; the broker looks into them only where it must.

Layout (never flexible): a version of two bytes, then `topics`, `user_data`, and from version 1 what the member
owns. Later versions only append fields, so a reader takes what it knows and leaves the rest.
"""

from collections.abc import Iterable, Mapping

from tidemill.groups.core.fields import FieldReader, FieldWriter
from tidemill.model.topics import TopicPartition


def subscribed_topics(subscription: bytes) -> list[str] | None:
    """The topics in a consumer's subscription; None when it is not one."""
    reader = FieldReader(subscription)
    try:
        if reader.int16() < 0:
            return None
        return reader.array(reader.string)
    except ValueError:
        return None


def write_subscription(topics: Iterable[str]) -> bytes:
    """A consumer's subscription (version 0)."""
    writer = FieldWriter(0)
    writer.array(sorted(topics), writer.string)
    writer.blob(b"")
    return writer.done()


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """A consumer's assignment (version 0)."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    writer = FieldWriter(0)

    def write(item: tuple[str, list[int]]) -> None:
        writer.string(item[0])
        writer.array(item[1], writer.int32)

    writer.array(by_topic.items(), write)
    writer.blob(b"")
    return writer.done()


def read_assignment(assignment: bytes) -> Mapping[str, list[int]]:
    """The partitions in a consumer's assignment by topic; nothing for no assignment. Raises ValueError if damaged."""
    if not assignment:
        return {}
    reader = FieldReader(assignment)
    reader.int16()
    return dict(reader.array(lambda: (reader.string(), reader.array(reader.int32))))
