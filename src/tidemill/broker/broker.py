"""The broker: starts and stops the parts of one node in order, and reacts to changes of the cluster.

`app/broker_wiring.py` makes the parts and connects them: groups and transactions know neither each other nor
partitions, so each gets the functions of the others as callables. Servers use the parts directly.

Order of start: topics and their partitions, membership, coordinators (which may write markers at once), timelines, and
then the servers, so that no client connects before everything acknowledged can be read. Order of stop: the reverse;
partitions are closed last, after all writers have stopped. Changes of the cluster reach topics and partitions first,
then deletions, coordinators and the controller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import NamedTuple, Protocol
from uuid import UUID

import structlog

from tidemill.broker import identity
from tidemill.broker.backlog_metrics import backlog_readings
from tidemill.broker.broker_loads import BrokerLoads
from tidemill.broker.clock_metrics import timeline_clock_readings
from tidemill.broker.cluster_view import ClusterView
from tidemill.broker.consumer_registry import ConsumerRegistry
from tidemill.broker.deletions import Deletions
from tidemill.broker.group_lag import GroupLags
from tidemill.broker.group_lag_history import lag_source
from tidemill.broker.group_overrides import GroupOverrides
from tidemill.broker.health import CertificateNote, Readers, own_health, publish, served
from tidemill.broker.history import BrokerHistory, delivery_source
from tidemill.broker.identity import ProducerIds
from tidemill.broker.maintenance import BrokerMaintenance
from tidemill.broker.metrics import BrokerMetrics
from tidemill.broker.partitions import Partitions, PartitionStore
from tidemill.broker.peer_watch import PeerWatch
from tidemill.broker.recent_log import RecentLog
from tidemill.broker.scheduling_metrics import scheduled_readings
from tidemill.broker.share_positions import SharePositions
from tidemill.broker.timeline_metrics import timeline_readings
from tidemill.broker.topics import Topics
from tidemill.broker.transaction_writes import TransactionVerifier
from tidemill.clocks.watch import ClockWatch
from tidemill.cluster.controller import Controller
from tidemill.cluster.core.placement import check_rack, rack_doubt
from tidemill.cluster.core.registration import CARRIER, OVERSEER, Endpoint
from tidemill.cluster.core.view import Touched
from tidemill.cluster.interface import Coordination
from tidemill.cluster.membership import Membership
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.coordinator.internal_topics import InternalTopics
from tidemill.coordinator.lookup import CoordinatorLookup
from tidemill.coordinator.placement import CoordinatorPlacement
from tidemill.coordinator.share_state_router import ShareStateRouter
from tidemill.coordinator.transaction_router import TransactionRouter
from tidemill.groups.coordinator import GroupCoordinator
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import TidemillError
from tidemill.model.listeners import ListenerSpec
from tidemill.model.metric_labels import CLUSTER
from tidemill.model.metrics import Labels
from tidemill.pipeline_reports.coordinator import PipelineReports
from tidemill.replication.leader_appends import LeaderAppends
from tidemill.replication.reassignment import Reassignments
from tidemill.scheduling import Scheduler
from tidemill.security.security import Security
from tidemill.shares.coordinator import ShareCoordinator
from tidemill.shares.partitions import SharePartitions
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.tracing.tracer import BrokerTracer
from tidemill.transactions.coordinator import TransactionCoordinator

NO_DIRECTORY = UUID(int=0)
SHARES_TICK_S = 60.0
REPORTS_TICK_S = 600.0
"""How often pipelines that ended long ago are looked for."""

log = structlog.get_logger("tidemill.broker")


@dataclass(frozen=True, slots=True)
class BrokerEnvironment:
    """The dependencies of a broker: storage, clocks, and a source of ids."""

    coordination: Coordination
    store: PartitionStore
    clock_ms: Callable[[], int]
    new_id: Callable[[], UUID]
    directory: UUID = NO_DIRECTORY
    """The id of the data directory."""
    steady_ms: Callable[[], int] | None = None
    """A clock that cannot be set; without one, `clock_ms` is never set."""
    belong: Callable[[str], Awaitable[None]] | None = None
    """Rejects a data directory or tables that belong to another cluster."""
    watch: ClockWatch | None = None
    """Whether the wall clock is trusted; without a watch it always is."""
    tracer: BrokerTracer | None = None
    """Records traces; None: the broker does not."""
    recent_log: RecentLog | None = None
    """The newest warnings and errors; None: they are not kept."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The identity of this broker in its cluster."""

    node_id: int = 0
    rack: str | None = None
    roles: tuple[str, ...] = (OVERSEER, CARRIER)
    session_ttl_ms: int = 10_000
    secret: str | None = field(default=None, repr=False)
    admin_password: str | None = field(default=None, repr=False)
    """The password of the user `admin`, who is created if missing."""
    listeners: tuple[ListenerSpec, ...] = ()
    metrics_labels: Labels = ()
    """Labels that the settings add to every metric."""


class ServerAddresses(NamedTuple):
    """The advertised addresses of the gRPC and HTTP servers; None for a server that is off."""

    grpc: tuple[str, int] | None = None
    http: tuple[str, int] | None = None


NO_SERVERS = ServerAddresses()


class BrokerServers(Protocol):
    """The servers and timelines around a broker: opened when it can serve clients, closed before it stops."""

    async def open_timelines(self, broker: "BrokerNode") -> Dispatcher | None:
        """Open the timelines of this broker, if it carries messages."""

    async def open(self, broker: "BrokerNode") -> ServerAddresses:
        """Accept connections."""

    async def close(self) -> None:
        """Accept no more connections and end the open ones, in bounded time."""


@dataclass(slots=True, eq=False, kw_only=True)
class BrokerNode:
    """One broker and its parts."""

    environment: BrokerEnvironment
    settings: BrokerSettings
    identity: BrokerIdentity
    supervisor: Supervisor
    security: Security
    metrics: BrokerMetrics
    history: BrokerHistory
    readers: Readers
    loads: BrokerLoads
    peer_watch: PeerWatch | None
    partitions: Partitions
    metadata: ClusterMetadata
    topics: Topics
    deletions: Deletions
    membership: Membership
    view: ClusterView
    controller: Controller
    reassignments: Reassignments
    consumer_registry: ConsumerRegistry
    appends: LeaderAppends
    internal: InternalTopics
    groups: GroupCoordinator
    group_overrides: GroupOverrides
    shares: SharePartitions
    share_positions: SharePositions
    share_states: ShareStateRouter
    share_coordinator: ShareCoordinator
    group_lag: GroupLags
    transactions: TransactionCoordinator
    pipeline_reports: PipelineReports
    transaction_router: TransactionRouter
    transaction_verifier: TransactionVerifier
    coordinators: CoordinatorLookup
    placement: CoordinatorPlacement
    producer_ids: ProducerIds
    maintenance: BrokerMaintenance
    make_scheduler: Callable[[Dispatcher], Scheduler]
    tracer: BrokerTracer | None = None
    cluster_id: str = ""
    cluster_secret: bytes = b""
    timelines: Dispatcher | None = None
    scheduler: Scheduler | None = None
    answer_timeline_calls: Callable[[bytes], Awaitable[bytes]] | None = None
    """Answers calls of other brokers about the partitions of replicated timelines that this broker leads."""
    move_notes: Callable[[], Sequence[str]] = tuple
    """What is left of timelines that move from a file of this broker to the cluster."""
    certificates: tuple[CertificateNote, ...] = ()
    """The certificates that need attention, as of the last daily look."""
    certificate_expiries: Mapping[str, datetime] = field(default_factory=dict)
    """When the certificate of each server with TLS expires, as of the last look."""
    _opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _is_stopping: bool = False

    @property
    def node_id(self) -> int:
        """The number of this broker in its cluster."""
        return self.identity.node_id

    @property
    def clock(self) -> ClockWatch | None:
        """Whether the wall clock is trusted."""
        return self.environment.watch

    @property
    def carries(self) -> bool:
        """Whether this broker carries messages; one that does not is an overseer only."""
        return CARRIER in self.identity.roles

    def clock_ms(self) -> int:
        """The time of the clock that this broker was given."""
        return self.environment.clock_ms()

    def note_topic_error(self, topic: str | UUID, operation: str, error: type[TidemillError]) -> None:
        """Count an error of an operation at its topic. Only names of topics that exist become labels."""
        known = self.view.topic(topic) if isinstance(topic, str) else self.view.topic_by_id(topic)
        if known is not None:
            self.metrics.topic(known.name).failed(operation, error.__name__)

    async def start(self, servers: BrokerServers | None = None) -> None:
        """Open everything; with `servers`, clients can connect when this returns."""
        try:
            await self._start(servers)
        except BaseException:
            await self._opened.aclose()
            raise

    async def stop(self) -> None:
        """Stop in order; everything acknowledged is on disk when this returns."""
        await self._opened.aclose()

    async def _start(self, servers: BrokerServers | None) -> None:
        self._opened.push_async_callback(self._close)
        await self._join()
        await self._start_tasks()
        if servers is None:
            return
        timelines = await servers.open_timelines(self)
        if timelines is not None:
            await self._use_timelines(timelines)
        self._opened.push_async_callback(servers.close)
        addresses = await servers.open(self)
        self._opened.push_async_callback(self.groups.close)  # servers wait for requests that wait for other members
        await self.announce(addresses)
        self._opened.push_async_callback(self._hand_over)

    async def _join(self) -> None:
        """Load the topics, then register in the cluster."""
        environment, own = self.environment, self.identity
        coordination = environment.coordination
        check_rack(own.rack, self.settings.tidemill_racks)
        self.cluster_id = await identity.cluster_id(coordination, environment.new_id())
        self.metrics.labels = ((CLUSTER, self.cluster_id), *own.metrics_labels)
        if environment.belong is not None:
            await environment.belong(self.cluster_id)
        self.cluster_secret = await identity.secret(coordination, own.secret, self.cluster_id, environment.new_id())
        await self.security.start(self.supervisor, own.admin_password)
        await self.group_overrides.start(self.supervisor)
        await self.membership.number_is_ours()
        await self.topics.load()
        self._tasks.append(self.supervisor.keep("metadata watch", partial(self.metadata.follow, self._on_change)))
        self.membership.lost_partitions = self.partitions.lost
        await self.membership.join()
        if not self.membership.lost_partitions:
            await self.partitions.store.losses_given_up()
        racks = [each.rack for node, each in self.metadata.image.brokers.items() if node != own.node_id]
        doubt = rack_doubt(own.rack, racks)
        if doubt is not None:
            log.warning("replicas_may_share_a_rack", reason=doubt)

    async def _start_tasks(self) -> None:
        await self.internal.adopt()
        await self.placement.start()
        self.deletions.look()
        self.history.add(lag_source(self.group_lag))
        settings, keep, repeat = self.settings, self.supervisor.keep, self.supervisor.repeat
        transactions_tick_ms = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._tasks += [
            keep("membership", self.membership.stay),
            keep("timeline consumers", self.consumer_registry.run),
            keep("history", self.history.run),
            keep("load", self.loads.run),
            repeat("maintenance", settings.tidemill_tend_interval_ms / 1000, self.maintain),
            repeat("transactions", transactions_tick_ms / 1000, self.transactions.tick),
            repeat("share partitions", SHARES_TICK_S, self._tidy_shares),
            repeat("pipeline reports", REPORTS_TICK_S, self.pipeline_reports.tick),
        ]
        if self.partitions.replicas is not None:
            self._tasks.append(repeat("replicas", self.partitions.replicas.tick_ms / 1000, self._check_replicas))
        if self.peer_watch is not None:
            self._tasks.append(keep("peer watch", self.peer_watch.run))
        if self.environment.coordination.shared and OVERSEER in self.identity.roles:
            self._tasks.append(keep("controller", self.controller.run))

    async def _use_timelines(self, timelines: Dispatcher) -> None:
        """Deliver scheduled records, and report the health and the metrics of the timelines."""
        self.timelines = timelines
        self._opened.push_async_callback(timelines.close)
        self.metrics.sources += [timeline_readings(timelines), timeline_clock_readings(timelines)]
        self.metrics.snapshots.append(backlog_readings(timelines, self._leads_first_partition))
        self.history.add(delivery_source(timelines))
        self.scheduler = self.make_scheduler(timelines)
        self.metrics.sources.append(scheduled_readings(self.scheduler))
        self._opened.push_async_callback(self._close_scheduler)
        await self.scheduler.open()

    def _leads_first_partition(self, topic: str) -> bool:
        first = self.partitions.find(topic, 0)
        return first is not None and first.leads

    async def announce(self, addresses: ServerAddresses = NO_SERVERS) -> None:
        """Register the addresses of the servers: from now on this broker may lead."""
        host, port = self.view.address
        registration = replace(
            self.membership.registration,
            kafka=Endpoint(host, port) if port else None,
            listeners=dict(self.view.listeners),
            grpc=Endpoint(*addresses.grpc) if addresses.grpc else None,
            http=Endpoint(*addresses.http) if addresses.http else None,
            shares_timelines=self.timelines is not None and self.timelines.shared,
        )
        await self.membership.announce(registration)

    async def _hand_over(self) -> None:
        """Let other brokers lead before the servers close, so that clients do not wait for the end of this broker."""
        self._is_stopping = True
        await self.membership.leave()

    async def _tidy_shares(self) -> None:
        await self.shares.tidy()
        await self.share_coordinator.forget_topics(lambda topic_id: self.view.topic_by_id(topic_id) is not None)

    async def _close_scheduler(self) -> None:
        if self.scheduler is not None:
            await self.scheduler.close()
            self.scheduler = None

    async def _close(self) -> None:
        await self.topics.settle()
        await self.deletions.close()
        await self.placement.close()
        await self.membership.leave()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.security.stop()
        await self.group_overrides.stop()
        await self.group_lag.close()
        await self.transactions.close()
        self.transaction_router.close()
        await self.shares.close()
        self.share_states.close()
        await self.groups.close()
        if self.partitions.replicas is not None:
            await self.partitions.replicas.close()
        await self.partitions.close()

    async def maintain(self) -> None:
        """Maintain every partition once."""
        if await self.partitions.reopen_failed(self.view.topic):
            self.placement.look()
        self.deletions.look()
        await self.maintenance.run()
        if self.scheduler is not None and self.timelines is not None and self.timelines.shared:
            self.scheduler.tend()
        await self._publish_health()

    async def _check_replicas(self) -> None:
        if self.partitions.replicas is not None:
            self.partitions.replicas.tick(self.partitions)
        await self._publish_health()

    async def _publish_health(self) -> None:
        """Register the health of this broker; one whose disk failed leads nothing that other brokers can lead."""
        if self._is_stopping:
            return
        failing, shared = self.supervisor.reasons(), self.environment.coordination.shared
        peers = self.loads.verdict
        now = own_health(self.partitions, self.timelines, failing, self.clock, peers=peers, shared=shared)
        await publish(self.membership, now, served(self.timelines, self.readers))

    async def _on_change(self, touched: Touched) -> None:
        """React to a change of the cluster; a part that fails does not stop the others."""
        if not any(touched):
            return  # such as a load, which brokers write all the time
        try:
            await self.topics.follow(touched)
        except Exception as error:  # noqa: BLE001 - reported, and the next change is followed
            self.supervisor.note_failure("metadata change", error)
        self.deletions.look()
        self.placement.look()
        self.controller.changed(touched)
        if self.scheduler is not None:
            self.scheduler.look()
        if touched.timelines:
            self.consumer_registry.changed(touched.timelines)
