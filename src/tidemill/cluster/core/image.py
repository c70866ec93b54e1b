"""The image: which topics there are, as one immutable value.

A change is data (`TopicCreated`, `TopicAltered`, ...); `Image.apply` makes the next image from it and counts `version`
up, to see what would become of it; what became of it is told by coordination (`view.py`). Whoever holds an image may
keep reading it; nobody sees half a change. A topic keeps its id for life; a topic deleted and created again is another
topic.

In coordination a topic is one JSON document (`encode_topic`) with the first placement of its partitions. A partition
whose state has changed since has a small document of its own (`encode_state`), and that one counts: a change of one
in-sync set does not write a topic of a thousand partitions anew, and a partition that never changed costs no key.
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
NOBODY = -1
"""The leader of a partition that has none."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Who carries a partition. Leader -1: nobody leads it now."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int
    version: int = 0
    """How often this has changed since the partition was made."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    """While it moves: the replicas that come and those that go; `replicas` are all that copy it now."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: its name and id, its partitions, what was set for it and what that comes to."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    overrides: Mapping[str, str]
    settings: TopicSettings

    @property
    def internal(self) -> bool:
        """Whether the broker keeps its own state in it."""
        return self.name in INTERNAL


class TopicCreated(NamedTuple):
    """There is a new topic."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    overrides: Mapping[str, str]


class TopicDeleted(NamedTuple):
    """A topic is gone."""

    name: str


class PartitionsAdded(NamedTuple):
    """A topic has more partitions; `partitions` are the new ones only."""

    name: str
    partitions: tuple[PartitionInfo, ...]


class TopicAltered(NamedTuple):
    """A topic has another whole set of overrides."""

    name: str
    overrides: Mapping[str, str]


Change = TopicCreated | TopicDeleted | PartitionsAdded | TopicAltered


@dataclass(frozen=True, slots=True)
class Image:
    """All topics and brokers at one version. `defaults` is what the broker's settings say about topics."""

    version: int = 0
    by_name: Mapping[str, Topic] = field(default_factory=lambda: MappingProxyType({}))
    by_id: Mapping[UUID, Topic] = field(default_factory=lambda: MappingProxyType({}))
    defaults: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    brokers: Mapping[int, Registration] = field(default_factory=lambda: MappingProxyType({}))
    """Those that are there."""
    known: Mapping[int, KnownBroker] = field(default_factory=lambda: MappingProxyType({}))
    """Those that are or were there, and were not forgotten."""

    def missing(self) -> list[KnownBroker]:
        """Brokers that were there once, are not, and were not forgotten."""
        return [known for node_id, known in self.known.items() if node_id not in self.brokers]

    def carried_by(self, node_id: int) -> list[TopicPartition]:
        """The partitions that a broker has a copy of, or should have."""
        return [
            TopicPartition(topic.name, info.index)
            for topic in self.by_name.values()
            for info in topic.partitions
            if node_id in info.replicas
        ]

    def apply(self, change: Change) -> "Image":
        """The image after this change; the error of the change when it cannot be."""
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
    """A topic as it is kept in coordination."""
    document = {
        "name": topic.name,
        "id": str(topic.topic_id),
        "overrides": dict(topic.overrides),
        "partitions": [[each.leader, each.replicas, each.isr, each.leader_epoch] for each in topic.partitions],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_topic(document: bytes) -> TopicCreated:
    """The change that brings back what `encode_topic` wrote."""
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
    """Where the state of a partition is kept, once it has changed."""
    return f"{STATES}{topic_id}/{index}"


def parse_state_key(key: str) -> tuple[UUID, int]:
    """Whose state is kept under this key."""
    try:
        topic_id, _, index = key.removeprefix(STATES).partition("/")
        return UUID(topic_id), int(index)
    except ValueError:
        raise KafkaStorageError(f"{key[:80]!r} in coordination is no partition") from None


def encode_state(info: PartitionInfo) -> bytes:
    """The state of a partition as it is kept in coordination."""
    fields = [info.leader, info.replicas, info.isr, info.leader_epoch, info.version, info.adding, info.removing]
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_state(index: int, document: bytes) -> PartitionInfo:
    """What `encode_state` wrote."""
    try:
        leader, replicas, isr, epoch, version, adding, removing = json.loads(document)
        return PartitionInfo(index, leader, tuple(replicas), tuple(isr), epoch, version, tuple(adding), tuple(removing))
    except (ValueError, TypeError) as error:
        raise KafkaStorageError(f"the state of a partition in coordination cannot be read: {error}") from None
