"""The internal topics, which store groups, transactions, timelines and waiting records, with one journal each.

They are compacted, except that of timelines, and their number of partitions never changes. The first record creates a
topic. In a cluster it is created when a client first asks for a coordinator, because its leaders must be known then.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

import structlog

from tidemill.cluster.core.image import NO_BROKER
from tidemill.coordinator.interface import OpenedPartitions, TopicAdmin
from tidemill.coordinator.journal import TopicJournal
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import TopicAlreadyExists
from tidemill.model.topics import (
    GROUP_OFFSETS,
    PIPELINES,
    SHARE_STATE,
    TIMELINES,
    TRANSACTION_STATE,
    WAITING,
    UnknownTopic,
)

REPORTS_SEGMENT_BYTES = 16 * 1024 * 1024
"""Reports replace each other every few seconds, and only closed segments are compacted."""

PROMISED = frozenset({TIMELINES, WAITING})
"""Topics with messages that were promised to producers; the broker cannot rebuild them."""

log = structlog.get_logger("tidemill.broker")


class Shape(NamedTuple):
    """The settings of one internal topic."""

    partitions: int
    copies: int
    segment_bytes: int


def shapes(settings: BrokerSettings) -> Mapping[str, Shape]:
    """The shape of each internal topic."""
    return {
        GROUP_OFFSETS: Shape(
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
            settings.offsets_topic_segment_bytes,
        ),
        TRANSACTION_STATE: Shape(
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_replication_factor,
            settings.transaction_state_log_segment_bytes,
        ),
        WAITING: Shape(
            settings.tidemill_waiting_topic_num_partitions,
            settings.tidemill_waiting_topic_replication_factor,
            settings.tidemill_waiting_topic_segment_bytes,
        ),
        SHARE_STATE: Shape(
            settings.share_coordinator_state_topic_num_partitions,
            settings.share_coordinator_state_topic_replication_factor,
            settings.share_coordinator_state_topic_segment_bytes,
        ),
        PIPELINES: Shape(1, settings.offsets_topic_replication_factor, REPORTS_SEGMENT_BYTES),
        TIMELINES: Shape(
            settings.tidemill_timelines_topic_num_partitions,
            settings.tidemill_timelines_topic_replication_factor,
            settings.tidemill_timelines_topic_segment_bytes,
        ),
    }


class InternalTopics:
    """Creates the internal topics, opens their journals, and finds the leaders of their partitions."""

    def __init__(
        self,
        topics: TopicAdmin,
        partitions: OpenedPartitions,
        shapes: Mapping[str, Shape],
        *,
        node_id: int,
        shared: bool,
        look: Callable[[], None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._topics = topics
        self._partitions = partitions
        self._shapes = shapes
        self._node_id = node_id
        self._shared = shared
        self._look = look
        self._clock_ms = clock_ms

    def journal(self, topic: str) -> TopicJournal:
        """The journal of an internal topic."""

        async def create() -> None:
            await self._create(topic)

        return TopicJournal(
            topic,
            width=lambda: self.width(topic),
            create=create,
            leads=lambda index, epoch: self.leads(topic, index, epoch),
            find=lambda index: self._partitions.find(topic, index),
            clock=self._clock_ms,
        )

    async def ensure(self, topic: str) -> None:
        """Create the topic in a cluster, where its leader must be known before the first record."""
        if self._shared:
            await self.create(topic)

    async def create(self, topic: str) -> None:
        """Create the topic if it is missing."""
        if topic not in self._topics.image.by_name:
            with suppress(TopicAlreadyExists):
                await self._create(topic)

    def led(self, topic: str) -> dict[int, int]:
        """The partitions that this broker leads and could open, with their epochs.

        A single broker coordinates before the topic exists.
        """
        known = self._topics.image.by_name.get(topic)
        if known is not None:
            mine = (info for info in known.partitions if info.leader == self._node_id)
            return {info.index: info.leader_epoch for info in mine if self.leads(topic, info.index)}
        return {} if self._shared else dict.fromkeys(range(self.width(topic)), 0)

    def leads(self, topic: str, index: int, epoch: int | None = None) -> bool:
        """Whether this broker leads a partition. The image alone may be stale while coordination is unreachable.

        With `epoch`, whether it has led the partition since that epoch. Otherwise another broker may have written in
        between.
        """
        self._look()
        partition = self._partitions.find(topic, index)
        if partition is None:
            return not self._shared and topic not in self._topics.image.by_name
        return partition.leads and (not self._shared or epoch is None or partition.leader_epoch == epoch)

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic; None while it does not exist."""
        known = self._topics.image.by_name.get(topic)
        return None if known is None else str(known.topic_id)

    def leader_of(self, topic: str, index: int) -> int:
        """The leader of a partition; -1 when it has none."""
        known = self._topics.image.by_name.get(topic)
        if known is None:
            return NO_BROKER if self._shared else self._node_id
        leader = known.partitions[index].leader
        return NO_BROKER if leader == self._node_id and not self.leads(topic, index) else leader

    def width(self, topic: str) -> int:
        """The number of partitions of a topic, now or after it is created."""
        known = self._topics.image.by_name.get(topic)
        return self._shapes[topic].partitions if known is None else len(known.partitions)

    async def adopt(self) -> None:
        """Register topics that have a directory here and are missing in coordination, with their ids and records."""
        for found in list(self._partitions.unknown):
            if found.name in self._shapes and found.topic_id and not self._shared:
                await self._create(found.name, found)
                self._partitions.unknown.remove(found)
                log.warning("internal_topic_adopted", topic=found.name, partitions=found.partitions)

    async def _create(self, topic: str, found: UnknownTopic | None = None) -> None:
        shape = self._shapes[topic]
        copies = min(shape.copies, len(self._topics.carriers()))
        overrides = {
            "cleanup.policy": "compact",
            "segment.bytes": str(shape.segment_bytes),
            "compression.type": "producer",
        }
        if topic == TIMELINES:  # its leaders trim it, after they have restated what is still needed
            overrides |= {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
        if topic in PROMISED:
            overrides["min.insync.replicas"] = str(max(1, copies - 1))
        await self._topics.create(
            topic,
            partitions=found.partitions if found else shape.partitions,
            replication_factor=copies,
            overrides=overrides,
            topic_id=UUID(found.topic_id) if found else None,
            internal=True,
        )
