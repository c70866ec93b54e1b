"""The broker: introduces streams, groups, transactions and the cluster to each other, and keeps them running.

Doors talk to this class only. It finds topics and partitions, changes topics (topics.py), hands out producer ids, and
owns the two coordinators: groups and transactions know neither each other nor partitions, so what one needs of
another is a callable that is made here. Order of start: topics and their partitions, membership, groups, transactions
(which may write markers at once). Order of stop: the other way round; partitions are closed last, when nobody writes
any more. Every change of the cluster's view goes one way: topics and partitions follow it, then deletions, seats and
the controller look at it.

Tending runs every few seconds (tending.py). Whatever is deleted because it is old asks `may_delete_by_time` first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

import structlog

from tidemill.broker import identity
from tidemill.broker.clock_sources import clock_gauges, compare_with
from tidemill.broker.consumer_registry import ConsumerRegistry
from tidemill.broker.deletions import Deletions
from tidemill.broker.health import Readers, own_health, publish, served
from tidemill.broker.maintenance import BrokerMaintenance
from tidemill.broker.metrics import BrokerMetrics
from tidemill.broker.partitions import Partitions, PartitionStore
from tidemill.broker.timeline_metrics import gauges
from tidemill.broker.topics import UNSET, Topics
from tidemill.client.kafka.replica_fetch import ReplicaFetchLimits
from tidemill.client.kafka.transaction_markers import TransactionalProducer
from tidemill.clocks.watch import ClockWatch
from tidemill.cluster.controller import Controller
from tidemill.cluster.core.changes import live_brokers
from tidemill.cluster.core.image import Image, Topic
from tidemill.cluster.core.placement import check_rack, rack_doubt
from tidemill.cluster.core.registration import CARRIER, OVERSEER, BrokerAddress, Endpoint, Registration
from tidemill.cluster.core.view import Touched
from tidemill.cluster.interface import Coordination
from tidemill.cluster.membership import Membership
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.coordinator.internal_topics import InternalTopics, shapes
from tidemill.coordinator.limits import group_limits, transaction_limits
from tidemill.coordinator.placement import CoordinatorPlacement
from tidemill.coordinator.transaction_router import TransactionRouter
from tidemill.groups.coordinator import GroupCoordinator
from tidemill.groups.core.catalog import TopicShape
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import NotLeaderOrFollower
from tidemill.model.topics import GROUP_OFFSETS, TRANSACTION_STATE, WAITING, TopicPartition
from tidemill.replication import lag
from tidemill.replication.peers import Peers
from tidemill.replication.reassignment import Reassignments
from tidemill.replication.replica_fetcher import ReplicaFetchers
from tidemill.replication.roles import ReplicaRoles
from tidemill.scheduling import ReplicatedStorage, Scheduler
from tidemill.streams.partition import Partition
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.transactions.coordinator import TransactionCoordinator
from tidemill.transactions.interface import TransactionMarker

NO_DIRECTORY = UUID(int=0)

log = structlog.get_logger("tidemill.broker")


@dataclass(frozen=True, slots=True)
class BrokerEnvironment:
    """What a broker takes from outside: where things are kept, the clock, and where ids come from."""

    coordination: Coordination
    store: PartitionStore
    clock_ms: Callable[[], int]
    new_id: Callable[[], UUID]
    directory: UUID = NO_DIRECTORY
    """The id of the data directory."""
    steady_ms: Callable[[], int] | None = None
    """A clock that nobody can set; without one, nobody sets `clock_ms`."""
    belong: Callable[[str], Awaitable[None]] | None = None
    """Refuses what belongs to another cluster: a data directory, tables on servers."""
    watch: ClockWatch | None = None
    """Whether the wall clock is trusted; without one it always is."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What this broker is in its cluster."""

    node_id: int = 0
    rack: str | None = None
    roles: tuple[str, ...] = (OVERSEER, CARRIER)
    session_ttl_ms: int = 10_000
    secret: str | None = None


class BrokerNode:
    """One node and everything it carries."""

    def __init__(self, world: BrokerEnvironment, settings: BrokerSettings, place: BrokerIdentity | None = None) -> None:
        self.place = place or BrokerIdentity()
        self.node_id = self.place.node_id
        self.cluster_id = ""
        self.cluster_secret = b""
        self.rack = self.place.rack
        self.settings = settings
        self.supervisor = Supervisor()
        self.telemetry = BrokerMetrics(self.supervisor)
        self.readers = Readers(world.clock_ms)
        self.partitions = Partitions(world.store)
        self.clock = world.watch
        clocks = world.clock_ms, world.steady_ms or world.clock_ms
        self._tending = BrokerMaintenance(self.partitions, settings, *clocks, self.may_delete_by_time, self.supervisor)
        self._world = world
        self._address = ("", 0)
        self._moves = 0
        self._leaving = False
        self._producer_ids = identity.ProducerIds(world.coordination)
        self._metadata = ClusterMetadata(world.coordination, settings.topic_defaults)
        self._deletions = Deletions(
            world.coordination, self._metadata, self.partitions, node_id=self.node_id, forget=self._forget_topic
        )
        self._topics = Topics(
            world.coordination,
            self._metadata,
            self.partitions,
            self._deletions,
            settings=settings,
            node_id=self.node_id,
            timelines_differ=self._timelines_differ,
        )
        self.membership = self._make_membership()
        self._internal = InternalTopics(
            self._topics,
            self.partitions,
            shapes(settings),
            node_id=self.node_id,
            shared=world.coordination.shared,
            look=self.membership.step_down_if_over,
            clock_ms=world.clock_ms,
            new_id=world.new_id,
        )
        self.attendance = ConsumerRegistry(world.coordination, self._metadata, self.membership, world.clock_ms)
        self._peers = self._make_peers()
        if world.watch is not None:
            self.telemetry.sources.append(clock_gauges(world.watch))
        if world.coordination.shared:
            if world.watch is not None:
                compare_with(world.watch, self._peers, self._metadata, world.coordination, self.node_id)
            self.partitions.replicas = self._make_replicas()
            self.telemetry.sources.append(lag.gauges(self.partitions, self.membership.states))
        self._controller = self._make_controller()
        self.moves = Reassignments(
            self._metadata, self.membership.states, self._topics.carriers, is_shared=self._topics.is_shared
        )
        self._timers: list[asyncio.Task[None]] = []
        self.timelines: Dispatcher | None = None
        self.scheduler: Scheduler | None = None
        self.groups = self._make_groups()
        self.transacting = TransactionRouter(
            self.node_id,
            connect=self._peers.connect,
            coordinator_of=self.transaction_coordinator_of,
            leader_of=self.leader_of,
            write_here=self._write_marker_here,
        )
        self.transactions = self._make_transactions()
        self._seats = CoordinatorPlacement(self.groups, self.transactions, self._internal.led, self.supervisor)

    async def start(self) -> None:
        """Open everything; when this returns every record that was acknowledged can be read."""
        coordination, place = self._world.coordination, self.place
        keep, repeat = self.supervisor.keep, self.supervisor.repeat
        check_rack(place.rack, self.settings.tidemill_racks)
        self.cluster_id = await identity.cluster_id(coordination, self._world.new_id())
        if self._world.belong is not None:
            await self._world.belong(self.cluster_id)
        self.cluster_secret = await identity.secret(coordination, place.secret, self.cluster_id, self._world.new_id())
        await self.membership.number_is_ours()
        await self._topics.load()
        self._timers = [keep("metadata watch", partial(self._metadata.follow, self._on_change))]
        self.membership.lost_partitions = self.partitions.lost
        await self.membership.join()
        if not self.membership.lost_partitions:
            await self.partitions.store.losses_given_up()
        doubt = rack_doubt(
            place.rack, [each.rack for node, each in self._metadata.image.brokers.items() if node != place.node_id]
        )
        if doubt is not None:
            log.warning("replicas of a partition may end up together", reason=doubt)
        await self._internal.adopt()
        await self._seats.start()
        self._deletions.look()
        transactions_tick_ms = self.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._timers += [
            keep("membership", self.membership.stay),
            keep("timeline consumers", self.attendance.run),
            repeat("maintenance", self.settings.tidemill_tend_interval_ms / 1000, self.tend),
            repeat("transactions", transactions_tick_ms / 1000, self.transactions.tick),
        ]
        if self.partitions.replicas is not None:
            self._timers.append(repeat("replicas", self.partitions.replicas.tick_ms / 1000, self._tick))
        if coordination.shared and OVERSEER in place.roles:
            self._timers.append(keep("controller", self._controller.run))

    async def announce(self, *, grpc: tuple[str, int] | None = None, http: tuple[str, int] | None = None) -> None:
        """Tell the others where the doors are: from now on this broker may lead."""
        host, port = self._address
        registration = replace(
            self.membership.registration,
            kafka=Endpoint(host, port) if port else None,
            grpc=Endpoint(*grpc) if grpc else None,
            http=Endpoint(*http) if http else None,
            shares_timelines=self.timelines is not None and self.timelines.shared,
        )
        await self.membership.announce(registration)

    async def hand_over(self) -> None:
        """Before the doors close: others lead what this broker led, so that clients need not wait for its end."""
        self._leaving = True
        await self.membership.leave()

    async def release(self) -> None:
        """Answer members that wait for others: called before the doors close, which wait for what is under way."""
        await self.groups.close()

    async def close(self) -> None:
        """Stop in order; what was acknowledged is on disk when this returns."""
        await self._topics.settle()
        await self._deletions.close()
        await self._seats.close()
        await self.membership.leave()
        for timer in self._timers:
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)
        await self.transactions.close()
        self.transacting.close()
        await self.groups.close()
        if self.partitions.replicas is not None:
            await self.partitions.replicas.close()
        await self.partitions.close()

    async def join_timelines(self, dispatcher: Dispatcher) -> None:
        """Timelines run beside the streams; their health and numbers are told with the broker's own."""
        self.timelines = dispatcher
        self.telemetry.sources.append(gauges(dispatcher))
        replicated = None
        if self._world.coordination.shared and not dispatcher.shared:
            journal = self._internal.journal(WAITING)
            replicated = ReplicatedStorage(journal, lambda: self._internal.led(WAITING), self._world.new_id)
        self.scheduler = Scheduler(
            self,
            dispatcher,
            self._world.clock_ms,
            node_id=self.node_id,
            replicated=replicated,
            supervisor=self.supervisor,
        )
        await self.scheduler.open()

    def _timelines_differ(self) -> bool:
        """Whether some brokers share their timelines and others do not: then nobody knows where records wait."""
        brokers = self._metadata.image.brokers.values()
        return len({one.shares_timelines for one in brokers if one.carries and one.kafka is not None}) > 1

    async def leave_timelines(self) -> None:
        """The timelines are about to close: deliver no more of their records."""
        if self.scheduler is not None:
            await self.scheduler.close()
            self.scheduler = None

    def clock_ms(self) -> int:
        """The time, by the clock that this broker was given."""
        return self._world.clock_ms()

    def may_delete_by_time(self) -> bool:
        """Whether something may be deleted because it is old; not while the wall clock is in doubt."""
        return self.clock is None or self.clock.may_delete()

    @property
    def image_version(self) -> int:
        """Grows with every change of topics or brokers."""
        return self._topics.image.version + self._moves + self.partitions.outages

    def advertise(self, host: str, port: int) -> None:
        """Say where clients find this broker."""
        self._address = (host, port)
        self._moves += 1

    @property
    def carries(self) -> bool:
        """Whether this broker carries messages; one that does not only oversees."""
        return CARRIER in self.place.roles

    @property
    def controller_id(self) -> int:
        """The broker that decides."""
        return self._metadata.view.controller if self._world.coordination.shared else self.node_id

    @property
    def image(self) -> Image:
        """The topics and brokers that this broker shows."""
        return self._topics.image

    def brokers(self) -> list[BrokerAddress]:
        """Every broker that clients may talk to."""
        mine = BrokerAddress(self.node_id, *self._address, self.rack)
        others = (each for each in self._metadata.image.brokers.values() if each.node_id != self.node_id)
        told = [BrokerAddress(each.node_id, *each.kafka, each.rack) for each in others if each.kafka is not None]
        return sorted([mine, *told])

    def missing_brokers(self) -> list[BrokerAddress]:
        """Every broker that was there once and is not, until it is forgotten; where it was."""
        missing = self._metadata.image.missing()
        return [BrokerAddress(each.node_id, *(each.kafka or ("", 0)), each.rack) for each in missing]

    def address_of(self, node_id: int) -> tuple[str, int] | None:
        """Where the Kafka door of a broker is, if it is there."""
        return next(((each.host, each.port) for each in self.brokers() if each.node_id == node_id), None)

    def coordinator_of(self, group_id: str) -> int:
        """The broker that coordinates a group; -1: nobody at the moment."""
        return self._internal.leader_of(GROUP_OFFSETS, self.groups.partition_of(group_id))

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        """The broker that coordinates a transactional id; -1: nobody at the moment."""
        return self._internal.leader_of(TRANSACTION_STATE, self.transactions.partition_of(transactional_id))

    async def ensure_internal(self, topic: str) -> None:
        """Create the topic of a coordinator, where its leader has to be known before the first record."""
        await self._internal.ensure(topic)

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""
        return self._topics.image.by_name.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        """The topic of this id."""
        return self._topics.image.by_id.get(topic_id)

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of the topic of this id, if there is one."""
        topic = self.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def topics(self) -> list[Topic]:
        """Every topic."""
        return list(self._topics.image.by_name.values())

    def partition(self, topic: str, index: int) -> Partition:
        """The partition; UnknownTopicOrPartition when there is none, NotLeaderOrFollower when it is elsewhere."""
        self.membership.step_down_if_over()
        found = self.partitions.find(topic, index)
        if found is not None:
            return found
        known = self.topic(topic)
        if known is not None and 0 <= index < len(known.partitions):
            info = known.partitions[index]
            if self.node_id not in info.replicas:
                raise NotLeaderOrFollower(f"{topic}-{index} is on brokers {list(info.replicas)}")
            if self.node_id != info.leader and self.partitions.is_shared(known):
                raise NotLeaderOrFollower(f"{topic}-{index} is led by broker {info.leader}")
        return self.partitions.get(topic, index)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = UNSET,
        replication_factor: int = UNSET,
        overrides: Mapping[str, str] | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """A new topic that can be written to when this returns."""
        topic = await self._topics.create(
            name,
            partitions,
            replication_factor,
            overrides or {},
            assignment,
            topic_id=self._world.new_id(),
            validate_only=validate_only,
        )
        if not validate_only:
            log.info("topic created", topic=name, partitions=len(topic.partitions))
        return topic

    async def delete_topic(self, name: str) -> None:
        """The topic, its records and the offsets that groups committed for it are gone when this returns."""
        await self._topics.delete(name)

    async def add_partitions(
        self,
        name: str,
        total: int,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Let a topic grow to `total` partitions."""
        return await self._topics.add_partitions(name, total, assignment, validate_only=validate_only)

    async def alter_topic(self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> Topic:
        """Give a topic another whole set of overrides; they work at once."""
        return await self._topics.alter(name, overrides, validate_only=validate_only)

    async def new_producer_id(self) -> int:
        """An id that no producer has had."""
        return await self._producer_ids.take()

    async def tend(self) -> None:
        """Look after every partition once."""
        if await self.partitions.mend(self.topic):
            self._seats.look()
        self._deletions.look()
        await self._tending.run()
        if self.scheduler is not None and self.timelines is not None and self.timelines.shared:
            self.scheduler.tend()
        await self._tell_state()

    async def _tell_state(self) -> None:
        """Tell the others how this broker stands; one whose disk failed leads nothing that others can lead."""
        if self._leaving:
            return
        failing, shared = self.supervisor.reasons(), self._world.coordination.shared
        now = own_health(self.partitions, self.timelines, failing, self.clock, shared=shared)
        await publish(self.membership, now, served(self.timelines, self.readers))

    def _make_groups(self) -> GroupCoordinator:
        return GroupCoordinator(
            self._internal.journal(GROUP_OFFSETS),
            topics=self._shapes,
            image_version=lambda: self.image_version,
            clock=self._world.clock_ms,
            steady=self._world.steady_ms,
            new_id=lambda: str(self._world.new_id()),
            limits=group_limits(self.settings),
            may_expire=self.may_delete_by_time,
            supervisor=self.supervisor,
        )

    def _make_transactions(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self._internal.journal(TRANSACTION_STATE),
            write_marker=self.transacting.write_marker,
            new_producer_id=self.new_producer_id,
            clock=self._world.clock_ms,
            steady=self._world.steady_ms,
            limits=transaction_limits(self.settings),
            may_expire=self.may_delete_by_time,
            supervisor=self.supervisor,
        )

    def _make_membership(self) -> Membership:
        place = self.place
        registration = Registration(
            place.node_id, self._world.new_id(), self._world.directory, rack=place.rack, roles=place.roles
        )
        return Membership(
            self._world.coordination,
            self._metadata,
            registration,
            ttl_ms=place.session_ttl_ms,
            new_id=self._world.new_id,
            step_down=self._step_down,
        )

    def _step_down(self) -> None:
        self.partitions.step_down()
        self._seats.look()

    def _make_controller(self) -> Controller:
        settings = self.settings
        interval_s = settings.leader_imbalance_check_interval_seconds
        return Controller(
            self._world.coordination,
            self._metadata,
            self.membership,
            rebalance_s=interval_s if settings.auto_leader_rebalance_enable else None,
            copies={topic: shape.copies for topic, shape in shapes(settings).items()},
            is_shared=self.partitions.is_shared,
        )

    def _make_peers(self) -> Peers:
        settings = self.settings
        limits = ReplicaFetchLimits(settings.replica_fetch_wait_max_ms, 1, settings.replica_fetch_response_max_bytes)
        return Peers(self.node_id, self.address_of, lambda: self.cluster_secret, limits)

    def _make_replicas(self) -> ReplicaRoles:
        return ReplicaRoles(
            self.node_id,
            self.membership.states,
            ReplicaFetchers(self._peers.link, self.settings.replica_fetch_max_bytes, self.supervisor),
            lag_max_ms=self.settings.replica_lag_time_max_ms,
            present=lambda node_id: node_id in live_brokers(self._metadata.image),
        )

    async def _tick(self) -> None:
        if self.partitions.replicas is not None:
            self.partitions.replicas.tick(self.partitions)
        await self._tell_state()

    async def _on_change(self, touched: Touched) -> None:
        """The cluster has changed; what cannot follow it does not keep the rest from it."""
        try:
            await self._topics.follow(touched)
        except Exception as error:  # noqa: BLE001 - reported, and the next change is followed
            self.supervisor.note_failure("metadata change", error)
        self._deletions.look()
        self._seats.look()
        self._controller.changed(touched)
        if self.scheduler is not None:
            self.scheduler.look()
        if touched.timelines:
            self.attendance.changed(touched.timelines)

    async def _forget_topic(self, name: str) -> None:
        """What this broker knows about a topic that is gone."""
        self.telemetry.forget_topic(name)
        await self.groups.topic_deleted(name)
        if self.scheduler is not None:
            await self.scheduler.topic_deleted(name)

    def _shapes(self) -> Iterable[TopicShape]:
        return [TopicShape(topic.name, topic.topic_id, len(topic.partitions)) for topic in self.topics()]

    async def append_at_leader(self, partition: TopicPartition, batch: bytearray) -> None:
        """Append durably, wherever the partition is led."""
        leader = self.leader_of(partition)
        if leader == self.node_id:
            await self.partition(*partition).append(batch, acks=-1)
        else:
            await self.produce_at(leader, partition, batch)

    async def produce_at(self, node_id: int, partition: TopicPartition, batch: bytearray) -> None:
        """Send a batch to another broker, which leads its partition."""
        await self._peers.produce(node_id, partition, batch)

    async def verify_transaction(
        self, partition: Partition, transactional_id: str | None, producer_id: int, epoch: int, *, implicit: bool
    ) -> None:
        """Refuse a transactional write that is not part of the open transaction of its producer.

        A transaction that is open in the partition was verified by its first write, where the coordinator is
        elsewhere; a producer that was fenced since is known by its epoch. A new epoch is a new transaction: the one
        before may still wait for its marker, which would end both.
        """
        writer = TransactionalProducer(transactional_id or "", producer_id, epoch)
        elsewhere = self.transaction_coordinator_of(writer.transactional_id) != self.node_id
        if elsewhere and transactional_id and partition.open_transaction(producer_id, epoch) is not None:
            return
        where = TopicPartition(partition.topic, partition.index)
        check = await self.transacting.verify(self.transactions, writer, where, implicit=implicit)
        check()

    async def _write_marker_here(self, marker: TransactionMarker) -> None:
        """End a transaction on one partition."""
        if marker.partition.topic == GROUP_OFFSETS:
            await self._end_offsets(marker)
        else:
            await self._append_marker(marker)

    async def _end_offsets(self, marker: TransactionMarker) -> None:
        """Offsets of groups are ended by the groups, who staged them.

        In a cluster their partition gets the marker, too: so every broker that leads it, now or later, refuses a
        coordinator that was replaced and does not know it.
        """
        where, who = marker.partition.partition, marker.producer_id
        end = partial(self.groups.end_transaction, partition=where, producer_id=who, commit=marker.commit)
        if not self._world.coordination.shared:
            await end()
            return
        check = self.partition(*marker.partition).check_marker
        known = marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
        await asyncio.gather(end(check=partial(check, *known)), self._append_marker(marker))

    async def _append_marker(self, marker: TransactionMarker) -> None:
        end = self.partition(*marker.partition).append_marker
        epoch = marker.coordinator_epoch
        await end(marker.producer_id, marker.producer_epoch, commit=marker.commit, coordinator_epoch=epoch)

    def leader_of(self, partition: TopicPartition) -> int:
        """Who leads a partition; this broker when nobody knows it, for it can say so best."""
        known = self.topic(partition.topic)
        if known is None or partition.partition >= len(known.partitions):
            return self.node_id
        return known.partitions[partition.partition].leader
