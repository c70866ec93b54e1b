"""The brokers of the simulated cluster, and its coordination.

The shells are the real ones (partition, fetcher, roles, segment log). This module replaces the servers, the broker that
follows the image, and etcd.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

from tests.support.virtual_loop import Endpoint

from tidemill.client.kafka.replica_fetch import PartGiven, PartWanted
from tidemill.cluster.core.election import retire
from tidemill.cluster.core.image import PartitionInfo
from tidemill.model.errors import (
    FencedLeaderEpoch,
    InvalidUpdateVersion,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    RequestTimedOut,
    TidemillError,
)
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.replication.replica_fetcher import ReplicaFetchers
from tidemill.replication.roles import ReplicaRoles
from tidemill.streams.core.follower import Diverged, OutOfRange, Question
from tidemill.streams.opener import opener
from tidemill.streams.partition import Partition, ReadResult
from tidemill.streams.segments import SegmentStore
from tidemill.testing.faults import SimDisk

if TYPE_CHECKING:
    from tests.simulation.replica_world import World

T = TypeVar("T")
NODES = (0, 1, 2)
COORDINATION = "coordination"
TOPIC_ID = UUID(int=7)
READ_BYTES = 1 << 20


class Knobs(NamedTuple):
    """The parameters that differ from seed to seed."""

    ttl_s: float
    lag_s: float
    wait_s: float
    fetch_bytes: int
    segment_bytes: int
    value_bytes: int
    records_max: int
    flush: str
    faults_per_s: float
    sniper: float

    @classmethod
    def draw(cls, random: Random) -> "Knobs":
        """The parameters of one seed."""
        value_bytes, records_max = random.choice([8, 8, 200, 3000]), random.choice([1, 3])
        return cls(
            ttl_s=random.choice([1.0, 2.0]),
            lag_s=random.choice([0.5, 1.0, 2.0]),
            wait_s=random.choice([0.02, 0.2]),
            fetch_bytes=random.choice([1, 1, 400, 100_000]),
            segment_bytes=(value_bytes + 100) * records_max * random.choice([3, 30, 10_000]),
            value_bytes=value_bytes,
            records_max=records_max,
            flush=random.choice(["fsync", "fsync", "fsync", "os"]),
            faults_per_s=random.choice([0.3, 0.7, 1.2]),
            sniper=random.choice([0.0, 0.1, 0.4]),
        )


class SlowDisk(SimDisk):
    """A simulated disk that takes time, and stops while its node is frozen."""

    node: "Node"

    async def aside(self, call: Callable[[], T]) -> T:
        """Run the call after a delay."""
        await asyncio.sleep(self.random.expovariate(2000))
        await self.node.thaw()
        return call()


class Coordination(Endpoint):
    """A linearizable coordination: sessions, and the state of the one partition."""

    def __init__(self, world: "World") -> None:
        super().__init__(COORDINATION)
        self.world = world
        self.info = PartitionInfo(0, -1, NODES, NODES, 0)
        self._seen: dict[int, float] = {}
        self._incarnations: dict[int, int] = {}

    async def heartbeat(self, node: int, incarnation: int) -> tuple[PartitionInfo, frozenset[int]]:
        """Renew a broker's session; returns the partition's state and the live brokers."""
        now = self.world.loop.now
        back = self._incarnations.get(node) != incarnation
        self._incarnations[node] = incarnation
        if back:
            self._seen.pop(node, None)
            self._set(retire(self.info, node, self.live()))
        self._seen[node] = now
        self._set(self.world.elect(self.info, self.live()))
        return self.info, self.live()

    async def propose(self, node: int, epoch: int, version: int, isr: tuple[int, ...]) -> PartitionInfo:
        """Compare and put."""
        info = self.info
        if info.leader != node or info.leader_epoch != epoch:
            raise FencedLeaderEpoch
        if info.version != version or not set(isr) - set(info.isr) <= self.live():
            raise InvalidUpdateVersion
        self.world.sometimes["shrunk"] += len(isr) < len(info.isr)
        self.world.sometimes["grown"] += len(isr) > len(info.isr)
        self._set(replace(info, isr=isr, version=version + 1))
        self.world.aim(node)
        return self.info

    def live(self) -> frozenset[int]:
        """The brokers with a session."""
        now = self.world.loop.now
        return frozenset(node for node, seen in self._seen.items() if now - seen < self.world.knobs.ttl_s)

    def _set(self, info: PartitionInfo | None) -> None:
        if info is not None:
            self.world.sometimes["elections"] += info.leader_epoch != self.info.leader_epoch
            self.info = info


class Node(Endpoint):
    """One broker: a disk, the partition on it, and the broker's tasks."""

    def __init__(self, world: "World", node_id: int) -> None:
        super().__init__(node_id)
        self.world = world
        self.node_id = node_id
        self.alive = False
        self.partition: Partition | None = None
        self.disk = self._own(SlowDisk(Random(world.random.random())))
        self._live: frozenset[int] = frozenset()
        self._replicas: ReplicaRoles | None = None
        self._member = 0
        self._tasks: list[asyncio.Task[None]] = []

    def boot(self) -> None:
        """Start, unless it runs."""
        if not self.alive:
            self.alive = True
            self.incarnation += 1
            self._tasks = [self.world.loop.create_task(self._run(self.incarnation))]

    def crash(self, *, power: bool) -> None:
        """Stop at any point. A power failure also loses some or all unsynced data."""
        if not self.alive:
            return
        self.alive = False
        self.disk.dead = True
        for task in self._tasks:
            task.cancel()
        replicas, self._replicas = self._replicas, None
        if replicas is not None:
            self.world.loop.create_task(replicas.close())
        self.partition = None
        after = self.disk.power_cut() if power else self.disk.killed()
        fresh = SlowDisk(self.disk.random)
        fresh.__dict__.update(after.__dict__)
        self.disk = self._own(fresh)
        self.world.sometimes["power cuts" if power else "kills"] += 1

    async def produce(self, batch: bytearray, timeout_s: float) -> int:
        """Handle Produce with acks=all, as the server does."""
        partition = self._serving()
        appended = await partition.leader.append(batch, acks=-1, timeout_s=timeout_s)
        return appended.base_offset

    async def fetch(self, replica: int, wanted: PartWanted) -> PartGiven:
        """Handle the Fetch of a replica, as the server does."""
        partition = self._serving()
        question = Question(self.node_id, wanted.leader_epoch, wanted.offset, wanted.last_epoch)
        found = await partition.leader.read_as_replica(replica, question, wanted.max_bytes)
        if isinstance(found, ReadResult) and not found.size:
            grown = asyncio.Event()
            leave = partition.reader.watch(grown.set, replica=True)
            try:
                async with asyncio.timeout(self.world.knobs.wait_s):
                    await grown.wait()
            except TimeoutError:
                pass
            finally:
                leave()
            found = await partition.leader.read_as_replica(replica, question, wanted.max_bytes)
        return _given(found, partition)

    async def delete_records(self) -> None:
        """Move the log start offset to some committed offset."""
        partition = self._serving()
        span = partition.high_watermark - partition.log_start_offset
        await partition.leader.delete_records(partition.log_start_offset + self.world.random.randint(0, max(span, 0)))
        self.world.sometimes["deleted"] += 1

    def _serving(self) -> Partition:
        if self.partition is None:
            raise NotLeaderOrFollower("not open yet")
        return self.partition

    async def _run(self, incarnation: int) -> None:
        world = self.world
        disk = self.disk
        store = SegmentStore(disk)
        open_one = opener(store, lambda: int(world.loop.now * 1000), disk.random.random)
        partition = await open_one("t", 0, world.topic.settings, 0)
        fetchers = ReplicaFetchers(self._connect, world.knobs.fetch_bytes)
        self._replicas = ReplicaRoles(
            self.node_id,
            self,
            fetchers,
            lag_max_ms=int(world.knobs.lag_s * 1000),
            present=lambda node: node in self._live,
        )
        await self._follow(partition, self._replicas)

    async def _follow(self, partition: Partition, replicas: ReplicaRoles) -> None:
        """Be a member while coordination answers. Step down by the own clock before the session can end."""
        world = self.world
        ttl_s = world.knobs.ttl_s
        self._member += 1
        renewed = world.loop.now
        while True:
            asked = world.loop.now
            try:
                info, live = await world.ask_coordination(
                    self.node_id, partial(world.coordination.heartbeat, self.node_id, self._member), ttl_s / 4
                )
                if asked - renewed < ttl_s * 0.8 or not partition.leads or self.partition is None:
                    renewed = asked
                    self._live = live
                    await replicas.assume(world.topic, info, partition)
                    self._show(partition)
                    world.observe_role(self.node_id, partition)
            except TimeoutError:
                pass
            if world.loop.now - renewed > ttl_s * 0.8:
                if partition.leads and self.partition is not None:
                    world.sometimes["stepped down"] += 1
                    partition.leader.step_down()
                self._member += 1
                renewed = world.loop.now
            replicas.tick([partition])
            await self._sleep(ttl_s / 10)

    def _show(self, partition: Partition) -> None:
        """Make a partition with a role visible to others."""
        if self.partition is None:
            self.partition = partition
            self._tasks.append(self.world.loop.create_task(self._observe(partition)))
            self._tasks.append(self.world.loop.create_task(self._tend(partition)))

    async def _tend(self, partition: Partition) -> None:
        while True:
            await self._sleep(1.0)
            await partition.maintain(int(self.world.loop.now * 1000))

    async def _observe(self, partition: Partition) -> None:
        """Read continuously, like a consumer."""
        changed = asyncio.Event()
        partition.reader.watch(changed.set)
        offset = 0
        while True:
            changed.clear()
            try:
                offset = max(offset, partition.log_start_offset)
                if offset < partition.high_watermark:
                    found = await partition.reader.read(offset, READ_BYTES)
                    for at, value in values_in(found.records):
                        self.world.observe(at, value)
                        offset = max(offset, at + 1)
                    continue
            except TidemillError:
                pass
            await changed.wait()

    async def propose_isr(
        self, topic: str, index: int, leader_epoch: int, version: int, isr: tuple[int, ...]
    ) -> PartitionInfo:
        """Ask coordination. A lost response means an unknown outcome."""
        _ = topic, index
        self.world.lie_in_wait(self.node_id)
        work = partial(self.world.coordination.propose, self.node_id, leader_epoch, version, isr)
        try:
            info: PartitionInfo = await self.world.ask_coordination(self.node_id, work, 0.5)
        except TimeoutError:
            raise RequestTimedOut("it is unknown whether the set was changed") from None
        return info

    async def _connect(self, leader: int) -> "SimLink":
        return SimLink(self.world, self.node_id, leader)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.thaw()

    async def thaw(self) -> None:
        """Wait while the node is frozen. It may be frozen again meanwhile."""
        left = self.frozen_until - self.world.loop.now
        if left > 0:
            await asyncio.sleep(left)
            await self.thaw()

    def _own(self, disk: SlowDisk) -> SlowDisk:
        disk.node = self
        return disk


class SimLink:
    """A fetcher's connection to a leader through the simulated network."""

    def __init__(self, world: "World", node_id: int, leader: int) -> None:
        self._world = world
        self._node_id = node_id
        self._leader = leader

    async def fetch(self, wanted: Sequence[PartWanted]) -> Sequence[PartGiven]:
        """The leader's response."""
        target = self._world.nodes[self._leader]
        try:
            return [
                await self._world.network.ask(
                    self._node_id, self._leader, partial(target.fetch, self._node_id, part), timeout_s=2.0
                )
                for part in wanted
            ]
        except TidemillError as error:
            return [PartGiven(part.topic_id, part.partition, _code(error), -1, -1, None, _NOTHING) for part in wanted]

    def close(self) -> None:
        """Nothing to release."""


_NOTHING = memoryview(b"")


def _code(error: TidemillError) -> int:
    return error.code


def _given(found: ReadResult | Diverged | OutOfRange, partition: Partition) -> PartGiven:
    head = (TOPIC_ID, 0)
    if isinstance(found, OutOfRange):
        return PartGiven(*head, OffsetOutOfRange.code, -1, found.log_start_offset, None, _NOTHING)
    if isinstance(found, Diverged):
        return PartGiven(*head, 0, -1, partition.log_start_offset, (found.epoch, found.end_offset), _NOTHING)
    records = memoryview(b"".join(found.records))
    return PartGiven(*head, 0, found.high_watermark, found.log_start_offset, None, records)


def values_in(records: Sequence[Any]) -> list[tuple[int, bytes]]:
    """The offsets and values of all records in these batches."""
    found = []
    for piece in records:
        view = memoryview(piece)
        for position, header in iter_headers(view):
            batch = view[position : position + header.size]
            found += [(record.offset, bytes(record.value or b"")) for record in read_records(batch)]
    return found
