"""The partition states in coordination. Leaders and the controller write them with compare-and-put on what they saw."""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from tidemill.cluster.core.changes import StateChange, live_brokers
from tidemill.cluster.core.image import PartitionInfo, Topic, encode_state, state_key
from tidemill.cluster.interface import Coordination, CoordinationAway, KeyGuard
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.model.errors import FencedLeaderEpoch, InvalidUpdateVersion, NotLeaderOrFollower

WRITES_MAX = 128
"""The most states that are written at the same time: etcd makes many writes durable together."""

log = structlog.get_logger("tidemill.cluster")


class States:
    """Writes states of partitions."""

    def __init__(
        self, coordination: Coordination, metadata: ClusterMetadata, node_id: int, member: Callable[[], bool]
    ) -> None:
        self._coordination = coordination
        self._metadata = metadata
        self.unclean_elections = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self._node_id = node_id
        self._member = member

    async def propose_isr(
        self, topic: str, index: int, leader_epoch: int, version: int, isr: tuple[int, ...]
    ) -> PartitionInfo:
        """Write this in-sync set if epoch and version are still current; the new state of the partition."""
        known, info = self._find(topic, index)
        if not self._member() or info.leader != self._node_id:
            raise NotLeaderOrFollower(f"{topic}-{index} is led by broker {info.leader}")
        if info.leader_epoch != leader_epoch:
            raise FencedLeaderEpoch(f"{topic}-{index} is at epoch {info.leader_epoch}, not {leader_epoch}")
        if info.version != version:
            raise InvalidUpdateVersion(f"{topic}-{index} is at version {info.version}, not {version}")
        joining = set(isr) - set(info.isr)
        if not joining <= live_brokers(self._metadata.image):
            raise InvalidUpdateVersion(f"{topic}-{index}: not all of the brokers {sorted(joining)} are alive")
        after = PartitionInfo(
            index, info.leader, info.replicas, isr, leader_epoch, version + 1, info.adding, info.removing
        )
        if await self.write(StateChange(known, info, after)) is None:
            raise InvalidUpdateVersion(f"{topic}-{index} was changed by another broker at the same time")
        return after

    async def write(self, change: StateChange, guard: KeyGuard | None = None) -> int | None:
        """Write one state over the one that was seen; its revision, or None when it has changed."""
        key = state_key(change.topic.topic_id, change.before.index)
        revision = self._metadata.view.revision_of(key)
        if self._find_in(change.topic, change.before.index) != change.before:
            return None
        written = await self._coordination.compare_and_put(key, encode_state(change.after), revision, guard=guard)
        if written is None:
            return None
        before, after = set(change.before.isr), set(change.after.isr)
        self.isr_shrinks += bool(before - after)
        self.isr_expands += bool(after - before)
        if change.unclean:
            self.unclean_elections += 1
            log.warning(
                "unclean_leader_elected",
                partition=f"{change.topic.name}-{change.before.index}",
                leader=change.after.leader,
            )
        return written

    async def write_all(self, changes: Iterable[StateChange], guard: KeyGuard | None = None) -> int:
        """Write many states, wait until this broker sees them, and return how many were written.

        A state that another broker changed is not written; the caller decides again.
        """
        slots = asyncio.Semaphore(WRITES_MAX)

        async def one(change: StateChange) -> int | None:
            async with slots:
                try:
                    return await self.write(change, guard)
                except CoordinationAway as error:
                    name = f"{change.topic.name}-{change.before.index}"
                    log.warning("partition_state_write_failed", partition=name, error=str(error))
                    return None

        written = [each for each in await asyncio.gather(*map(one, changes)) if each is not None]
        if written:
            # The caller decides again on the metadata, so it must contain these writes first.
            await self._metadata.caught_up(max(written))
        return len(written)

    def _find(self, name: str, index: int) -> tuple[Topic, PartitionInfo]:
        topic = self._metadata.image.by_name.get(name)
        if topic is None or index >= len(topic.partitions):
            raise NotLeaderOrFollower(f"partition {name}-{index} does not exist any more")
        return topic, topic.partitions[index]

    def _find_in(self, topic: Topic, index: int) -> PartitionInfo | None:
        now = self._metadata.image.by_id.get(topic.topic_id)
        return now.partitions[index] if now is not None else None
