"""The image: all topics and brokers of the cluster, as one immutable value.

A change is data (`TopicCreated`, `TopicAltered`, ...). `Image.apply` computes the image after a change and increments
`version`. It serves to validate a change before it is written; the image that counts comes from coordination
(`view.py`). An image never changes, so a reader can keep it and never sees half a change. A topic keeps its id until it
is deleted; a topic of the same name that is created later has another id.

In coordination a topic is one JSON document (`encode_topic`) with the first placement of its partitions. A partition
whose state has changed since then has its own small document (`encode_state`), which takes precedence. So a change of
one in-sync set does not rewrite a topic of a thousand partitions, and a partition that never changed needs no key.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.cluster.core.known_brokers import KnownBroker
from tidemill.cluster.core.registration import Registration
from tidemill.model.errors import KafkaStorageError, TopicAlreadyExists, UnknownTopicOrPartition
from tidemill.model.topic_settings import TopicSettings, parse
from tidemill.model.topics import INTERNAL, TopicPartition

TOPICS = "topics/"
STATES = "states/"
NO_BROKER = -1
"""The leader of a partition that has none."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The leader and the replicas of a partition. Leader -1: it has no leader now."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int
    version: int = 0
    """How often the state has changed since the partition was created."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    """During a reassignment: the replicas that are added and removed; `replicas` are all current copies."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: name, id, partitions, its overrides, and the settings that result from them."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    overrides: Mapping[str, str]
    settings: TopicSettings

    @property
    def internal(self) -> bool:
        """Whether the broker stores its own state in the topic."""
        return self.name in INTERNAL


class TopicCreated(NamedTuple):
    """A topic was created."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    overrides: Mapping[str, str]


class TopicDeleted(NamedTuple):
    """A topic was deleted."""

    name: str


class PartitionsAdded(NamedTuple):
    """Partitions were added to a topic; `partitions` has only the new ones."""

    name: str
    partitions: tuple[PartitionInfo, ...]


class TopicAltered(NamedTuple):
    """All overrides of a topic were replaced."""

    name: str
    overrides: Mapping[str, str]


Change = TopicCreated | TopicDeleted | PartitionsAdded | TopicAltered


@dataclass(frozen=True, slots=True)
class Image:
    """All topics and brokers at one version. `defaults` are the topic settings from the broker's settings."""

    version: int = 0
    by_name: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    by_id: Mapping[UUID, Topic] = field(default_factory=lambda: MappingProxyType({}))
    defaults: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    brokers: Mapping[int, Registration] = field(default_factory=lambda: MappingProxyType({}))
    """The live brokers."""
    known: Mapping[int, KnownBroker] = field(default_factory=lambda: MappingProxyType({}))
    """All brokers that are or were members, except those that an operator has forgotten."""

    def missing(self) -> list[KnownBroker]:
        """Brokers that were members, are not alive now, and were not forgotten."""
        return [known for node_id, known in self.known.items() if node_id not in self.brokers]

    def carried_by(self, node_id: int) -> list[TopicPartition]:
        """The partitions of which a broker has, or should have, a replica."""
        return [
            TopicPartition(topic.name, info.index)
            for topic in self.by_name.values()
            for info in topic.partitions
            if node_id in info.replicas
        ]

    def apply(self, change: Change) -> "Image":
        """The image after this change; raises when the change is not valid."""
        match change:
            case TopicCreated(name, topic_id, partitions, overrides):
                if name in self.by_name:
                    raise TopicAlreadyExists(f"topic {name} exists already")
                return self._with(Topic(name, topic_id, partitions, dict(overrides), self._settings(overrides)))
            case TopicDeleted(name):
                return self._without(self._known(name))
            case PartitionsAdded(name, added):
                known = self._known(name)
                return self._with(replace(known, partitions=(*known.partitions, *added)))
            case TopicAltered(name, overrides):
                settings = self._settings(overrides)
                return self._with(replace(self._known(name), overrides=dict(overrides), settings=settings))

    def _settings(self, overrides: Mapping[str, str]) -> TopicSettings:
        return parse({**self.defaults, **overrides})

    def _known(self, name: str) -> Topic:
        try:
            return self.by_name[name]
        except KeyError:
            raise UnknownTopicOrPartition(f"there is no topic {name}") from None

    def _with(self, topic: Topic) -> "Image":
        return replace(
            self,
            version=self.version + 1,
            by_name=MappingProxyType({**self.by_name, topic.name: topic}),
            by_id=MappingProxyType({**self.by_id, topic.topic_id: topic}),
        )

    def _without(self, topic: Topic) -> "Image":
        return replace(
            self,
            version=self.version + 1,
            by_name=MappingProxyType({name: each for name, each in self.by_name.items() if name != topic.name}),
            by_id=MappingProxyType({key: each for key, each in self.by_id.items() if key != topic.topic_id}),
        )


def encode_topic(topic: Topic) -> bytes:
    """Encode a topic for coordination."""
    document = {
        "name": topic.name,
        "id": str(topic.topic_id),
        "overrides": dict(topic.overrides),
        "partitions": [[each.leader, each.replicas, each.isr, each.leader_epoch] for each in topic.partitions],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_topic(document: bytes) -> TopicCreated:
    """Decode the output of `encode_topic`, as a change that creates the topic."""
    try:
        read: dict[str, Any] = json.loads(document)
        partitions = tuple(
            PartitionInfo(index, leader, tuple(replicas), tuple(isr), epoch)
            for index, (leader, replicas, isr, epoch) in enumerate(read["partitions"])
        )
        return TopicCreated(read["name"], UUID(read["id"]), partitions, dict(read["overrides"]))
    except (ValueError, KeyError, TypeError) as error:
        raise KafkaStorageError(f"a topic in coordination cannot be read: {error}") from None


def state_key(topic_id: UUID, index: int) -> str:
    """The key of a partition's state, which exists once the state has changed."""
    return f"{STATES}{topic_id}/{index}"


def parse_state_key(key: str) -> tuple[UUID, int]:
    """The topic id and the partition of a state key."""
    try:
        topic_id, _, index = key.removeprefix(STATES).partition("/")
        return UUID(topic_id), int(index)
    except ValueError:
        raise KafkaStorageError(f"the coordination key {key[:80]!r} is not a partition key") from None


def encode_state(info: PartitionInfo) -> bytes:
    """Encode the state of a partition for coordination."""
    fields = [info.leader, info.replicas, info.isr, info.leader_epoch, info.version, info.adding, info.removing]
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_state(index: int, document: bytes) -> PartitionInfo:
    """Decode the output of `encode_state`."""
    try:
        leader, replicas, isr, epoch, version, adding, removing = json.loads(document)
        return PartitionInfo(index, leader, tuple(replicas), tuple(isr), epoch, version, tuple(adding), tuple(removing))
    except (ValueError, TypeError) as error:
        raise KafkaStorageError(f"the state of a partition in coordination cannot be read: {error}") from None
