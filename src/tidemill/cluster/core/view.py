"""The view: what a broker has received from coordination, as an image with the revisions of its keys.

A listing creates it, and changes update it, many at a time. Only the topics that the changes touch are rebuilt. For
keys of other packages the view stores only the revision.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from tidemill.cluster.core.broker_load import LOADS, LoadReport, decode_load
from tidemill.cluster.core.consumer_registry import (
    CONSUMERS,
    DEALS,
    RegisteredConsumer,
    decode_consumer,
    parse_consumer_key,
)
from tidemill.cluster.core.image import (
    NO_BROKER,
    STATES,
    TOPICS,
    Image,
    PartitionInfo,
    Topic,
    TopicCreated,
    decode_state,
    decode_topic,
    parse_state_key,
)
from tidemill.cluster.core.known_brokers import KNOWN, KnownBroker, decode_known
from tidemill.cluster.core.registration import BROKERS, Registration, decode_registration
from tidemill.cluster.core.tombstones import DELETIONS, Tombstone, decode_tombstone
from tidemill.model.topic_settings import parse

CONTROLLER = "controller"
"""The key that the elected controller holds under its session."""


class KeyChange(NamedTuple):
    """The value of a key since this revision; None when the key was deleted."""

    key: str
    value: bytes | None
    revision: int


class Touched(NamedTuple):
    """The topics, timelines and kinds of keys that a list of changes touched."""

    topics: frozenset[str]
    brokers: bool
    controller: bool
    deletions: bool
    timelines: frozenset[str] = frozenset()
    """The timelines whose consumers or deals changed."""


class View:
    """The image and the documents that it was built from."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        self.image = Image(defaults=MappingProxyType(dict(defaults)))
        self.controller = NO_BROKER
        self.tombstones: dict[str, Tombstone] = {}
        self.consumers: defaultdict[str, dict[str, RegisteredConsumer]] = defaultdict(dict)
        """For each timeline, the consumers by id."""
        self.deals: dict[str, bytes] = {}
        """The record of the deal of each timeline."""
        self.loads: dict[int, LoadReport] = {}
        """What each broker has published about its load. It is not part of the image, which rarely changes."""
        self.revisions: dict[str, int] = {}
        self._created: dict[str, TopicCreated] = {}
        self._names: dict[UUID, str] = {}
        self._states: defaultdict[UUID, dict[int, PartitionInfo]] = defaultdict(dict)
        self._brokers: dict[int, Registration] = {}
        self._known: dict[int, KnownBroker] = {}

    def revision_of(self, key: str) -> int:
        """The revision that wrote this key; 0 when the key does not exist."""
        return self.revisions.get(key, 0)

    def apply(self, changes: Iterable[KeyChange]) -> Touched:
        """Apply changes; returns what they touched."""
        topics: set[str] = set()
        kinds: set[str] = set()
        timelines: set[str] = set()
        for change in changes:
            if change.key.startswith(CONSUMERS):
                timelines.add(self._note_consumer(change))
            elif change.key.startswith(DEALS):
                timelines.add(self._note_deal(change))
            elif change.key.startswith(LOADS):
                self._note_load(change)
            else:
                self._note(change, topics, kinds)
        if topics or kinds:
            self._make_image(topics)
        return Touched(
            frozenset(topics), BROKERS in kinds, CONTROLLER in kinds, DELETIONS in kinds, frozenset(timelines)
        )

    def _note(self, change: KeyChange, topics: set[str], kinds: set[str]) -> None:
        key, value, _ = change
        self._note_revision(change)
        if key.startswith(STATES):
            topic_id, index = parse_state_key(key)
            if value is not None:
                self._states[topic_id][index] = decode_state(index, value)
            elif topic_id in self._states:
                self._states[topic_id].pop(index, None)
            if topic_id in self._names:
                topics.add(self._names[topic_id])
        elif key.startswith(TOPICS):
            topics.add(key.removeprefix(TOPICS))
            self._note_topic(key.removeprefix(TOPICS), value)
        elif key.startswith(BROKERS):
            kinds.add(BROKERS)
            self._note_broker(int(key.removeprefix(BROKERS)), value)
        elif key.startswith(KNOWN):
            kinds.add(BROKERS)
            self._note_known(int(key.removeprefix(KNOWN)), value)
        elif key.startswith(DELETIONS):
            kinds.add(DELETIONS)
            topics.add(key.removeprefix(DELETIONS))
            self._note_tombstone(key.removeprefix(DELETIONS), value)
        elif key == CONTROLLER:
            kinds.add(CONTROLLER)
            self.controller = NO_BROKER if value is None else int(value)

    def _note_revision(self, change: KeyChange) -> None:
        if change.value is None:
            self.revisions.pop(change.key, None)
        else:
            self.revisions[change.key] = change.revision

    def _note_deal(self, change: KeyChange) -> str:
        self._note_revision(change)
        timeline = change.key.removeprefix(DEALS)
        if change.value is None:
            self.deals.pop(timeline, None)
        else:
            self.deals[timeline] = change.value
        return timeline

    def _note_consumer(self, change: KeyChange) -> str:
        self._note_revision(change)
        timeline, consumer = parse_consumer_key(change.key)
        if change.value is not None:
            self.consumers[timeline][consumer] = decode_consumer(consumer, change.value)
            return timeline
        self.consumers[timeline].pop(consumer, None)
        if not self.consumers[timeline]:
            del self.consumers[timeline]
        return timeline

    def _note_load(self, change: KeyChange) -> None:
        self._note_revision(change)
        node_id = int(change.key.removeprefix(LOADS))
        load = None if change.value is None else decode_load(change.value)
        if load is None:
            self.loads.pop(node_id, None)
        else:
            self.loads[node_id] = load

    def _note_topic(self, name: str, value: bytes | None) -> None:
        before = self._created.pop(name, None)
        if before is not None:
            self._names.pop(before.topic_id, None)
        if value is not None:
            created = self._created[name] = decode_topic(value)
            self._names[created.topic_id] = name
        elif before is not None:
            self._states.pop(before.topic_id, None)

    def _note_broker(self, node_id: int, value: bytes | None) -> None:
        if value is None:
            self._brokers.pop(node_id, None)
        else:
            self._brokers[node_id] = decode_registration(value)

    def _note_known(self, node_id: int, value: bytes | None) -> None:
        if value is None:
            self._known.pop(node_id, None)
        else:
            self._known[node_id] = decode_known(value)

    def _note_tombstone(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.tombstones.pop(name, None)
        else:
            self.tombstones[name] = decode_tombstone(value)

    def _make_image(self, touched: Iterable[str]) -> None:
        by_name = dict(self.image.by_name)
        by_id = dict(self.image.by_id)
        for name in touched:
            before = by_name.pop(name, None)
            if before is not None:
                by_id.pop(before.topic_id, None)
            topic = self._topic(name, before)
            if topic is not None:
                by_name[name] = by_id[topic.topic_id] = topic
        self.image = replace(
            self.image,
            version=self.image.version + 1,
            by_name=MappingProxyType(by_name),
            by_id=MappingProxyType(by_id),
            brokers=MappingProxyType(dict(sorted(self._brokers.items()))),
            known=MappingProxyType(dict(sorted(self._known.items()))),
        )

    def _topic(self, name: str, before: Topic | None) -> Topic | None:
        created = self._created.get(name)
        tombstone = self.tombstones.get(name)
        if created is None or (tombstone is not None and tombstone.topic_id == created.topic_id):
            return None
        states = self._states.get(created.topic_id, {})
        partitions = tuple(states.get(first.index, first) for first in created.partitions)
        if before is not None and before.topic_id == created.topic_id and before.overrides == created.overrides:
            return replace(before, partitions=partitions)
        settings = parse({**self.image.defaults, **created.overrides})
        return Topic(name, created.topic_id, partitions, dict(created.overrides), settings)
