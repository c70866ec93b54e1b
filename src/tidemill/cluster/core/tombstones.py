"""Tombstones: topics that are being deleted.

A deletion begins with a tombstone in coordination and ends when it is gone; in between nobody sees the topic, and
nobody can create one of its name. `left` are the brokers that still have something of it: each takes itself out when
its part is removed. The owner, which asked for the deletion, takes the rest out of coordination; when it dies the
controller is the owner. A broker that is away is not waited for: a deletion record under the topic's id stays for it.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from uuid import UUID

from tidemill.cluster.core.image import Topic
from tidemill.model.errors import KafkaStorageError

DELETIONS = "deletions/"
RECORDS = "deleted/"
"""Finished deletions of topics of which brokers that were away may still have something."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """One topic on its way out."""

    name: str
    topic_id: UUID
    partitions: int
    owner: int
    left: tuple[int, ...]

    def without(self, node_id: int) -> "Tombstone":
        """The same when this broker has removed its part."""
        return replace(self, left=tuple(node for node in self.left if node != node_id))

    def owned_by(self, node_id: int) -> "Tombstone":
        """The same with another owner."""
        return replace(self, owner=node_id)

    def finished(self, live: Collection[int]) -> bool:
        """Whether nobody who is there has something of it."""
        return not any(node in live for node in self.left)


def bury(topic: Topic, owner: int, live: Collection[int]) -> Tombstone:
    """The tombstone of a topic: who carries it has records to remove, and everybody may keep offsets of groups."""
    concerned = {*live, *(node for info in topic.partitions for node in info.replicas)}
    return Tombstone(topic.name, topic.topic_id, len(topic.partitions), owner, tuple(sorted(concerned)))


def tombstone_key(name: str) -> str:
    """Where a deletion is kept: under the name that it blocks."""
    return f"{DELETIONS}{name}"


def record_key(topic_id: UUID) -> str:
    """Where a finished deletion is kept for brokers that were away."""
    return f"{RECORDS}{topic_id}"


def encode_tombstone(tombstone: Tombstone) -> bytes:
    """A tombstone as it is kept in coordination."""
    return json.dumps(asdict(tombstone), separators=(",", ":"), default=str).encode()


def decode_tombstone(document: bytes) -> Tombstone:
    """What `encode_tombstone` wrote."""
    try:
        read = json.loads(document)
        left = tuple(read["left"])
        return Tombstone(read["name"], UUID(read["topic_id"]), read["partitions"], read["owner"], left)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KafkaStorageError(f"a deletion in coordination cannot be read: {error}") from None
