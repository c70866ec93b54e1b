"""Tombstones: topics that are being deleted.

A deletion starts with a tombstone in coordination and ends when the tombstone is removed. In between the topic is
hidden, and its name cannot be used for a new topic. `left` are the brokers that still have data of the topic. Each
broker removes its part and then itself from `left`. The owner, which received the delete request, removes the rest from
coordination. When the owner dies, the controller becomes the owner. The deletion does not wait for a broker that is
down: a deletion record under the topic's id stays for it.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from uuid import UUID

from tidemill.cluster.core.image import Topic
from tidemill.model.errors import KafkaStorageError

DELETIONS = "deletions/"
RECORDS = "deleted/"
"""Finished deletions of topics of which a broker that was down may still have data."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """One topic that is being deleted."""

    name: str
    topic_id: UUID
    partitions: int
    owner: int
    left: tuple[int, ...]

    def without(self, node_id: int) -> "Tombstone":
        """The tombstone after this broker has removed its part."""
        return replace(self, left=tuple(node for node in self.left if node != node_id))

    def owned_by(self, node_id: int) -> "Tombstone":
        """The tombstone with another owner."""
        return replace(self, owner=node_id)

    def finished(self, live: Collection[int]) -> bool:
        """Whether no live broker has data of the topic."""
        return not any(node in live for node in self.left)


def tombstone_for(topic: Topic, owner: int, live: Collection[int]) -> Tombstone:
    """The tombstone of a topic: its replicas have records to remove, and every live broker may have offsets of
    groups.
    """
    concerned = {*live, *(node for info in topic.partitions for node in info.replicas)}
    return Tombstone(topic.name, topic.topic_id, len(topic.partitions), owner, tuple(sorted(concerned)))


def tombstone_key(name: str) -> str:
    """The key of a tombstone, under the topic name that it blocks."""
    return f"{DELETIONS}{name}"


def record_key(topic_id: UUID) -> str:
    """The key of a finished deletion, for brokers that were down."""
    return f"{RECORDS}{topic_id}"


def encode_tombstone(tombstone: Tombstone) -> bytes:
    """Encode a tombstone for coordination."""
    return json.dumps(asdict(tombstone), separators=(",", ":"), default=str).encode()


def decode_tombstone(document: bytes) -> Tombstone:
    """Decode the output of `encode_tombstone`."""
    try:
        read = json.loads(document)
        left = tuple(read["left"])
        return Tombstone(read["name"], UUID(read["topic_id"]), read["partitions"], read["owner"], left)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KafkaStorageError(f"a deletion in coordination cannot be read: {error}") from None
