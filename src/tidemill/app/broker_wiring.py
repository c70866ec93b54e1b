"""Makes the parts of a broker and connects them.

Concepts do not import each other: what one needs from another is a callable that is made here. Some parts need one
that is made later; those callables look it up when they are called.
"""

import ssl
from collections.abc import Callable, Iterable
from functools import partial

from tidemill.broker.broker import BrokerEnvironment, BrokerIdentity, BrokerNode
from tidemill.broker.broker_loads import BrokerLoads
from tidemill.broker.clock_metrics import clock_readings
from tidemill.broker.clock_sources import compare_with
from tidemill.broker.cluster_metrics import cluster_readings
from tidemill.broker.cluster_view import ClusterView
from tidemill.broker.consumer_registry import ConsumerRegistry
from tidemill.broker.degradation import Degradation
from tidemill.broker.deletions import Deletions
from tidemill.broker.group_lag import GroupLags
from tidemill.broker.group_metrics import group_readings
from tidemill.broker.group_overrides import GroupOverrides
from tidemill.broker.health import Readers
from tidemill.broker.history import BrokerHistory, request_source, traffic_source
from tidemill.broker.identity import ProducerIds
from tidemill.broker.load_meter import LoadMeter
from tidemill.broker.load_metrics import load_readings
from tidemill.broker.log_metrics import log_readings
from tidemill.broker.maintenance import BrokerMaintenance
from tidemill.broker.metrics import BROKERS, BrokerMetrics
from tidemill.broker.partition_metrics import partition_offsets
from tidemill.broker.partitions import Partitions
from tidemill.broker.peer_watch import PeerWatch
from tidemill.broker.pipeline_metrics import pipeline_readings, pipeline_source
from tidemill.broker.server_metrics import server_readings
from tidemill.broker.share_logs import ShareGroupSettings
from tidemill.broker.share_metrics import ShareReadings
from tidemill.broker.share_positions import SharePositions
from tidemill.broker.topic_metrics import topic_readings
from tidemill.broker.topics import Topics
from tidemill.broker.transaction_writes import TransactionVerifier, write_marker
from tidemill.client.kafka.replica_fetch import ReplicaFetchLimits
from tidemill.cluster.controller import Controller
from tidemill.cluster.core.changes import live_brokers
from tidemill.cluster.core.registration import INACTIVE, Registration
from tidemill.cluster.membership import Membership
from tidemill.cluster.metadata import ClusterMetadata
from tidemill.coordinator.interface import Coordinator
from tidemill.coordinator.internal_topics import PROMISED, InternalTopics, shapes
from tidemill.coordinator.limits import group_limits, limits_of_group, transaction_limits
from tidemill.coordinator.lookup import CoordinatorLookup
from tidemill.coordinator.placement import CoordinatorPlacement
from tidemill.coordinator.share_state_router import ShareStateRouter
from tidemill.coordinator.timers import Timers
from tidemill.coordinator.transaction_router import TransactionRouter
from tidemill.groups.coordinator import GroupCoordinator
from tidemill.groups.core.catalog import TopicShape
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.listeners import inter_broker_listener, is_authorizer_on
from tidemill.model.topics import GROUP_OFFSETS, PIPELINES, SHARE_STATE, TRANSACTION_STATE, WAITING
from tidemill.pipeline_reports.coordinator import PipelineReports
from tidemill.replication.leader_appends import LeaderAppends
from tidemill.replication.peers import Peers
from tidemill.replication.reassignment import Reassignments
from tidemill.replication.replica_fetcher import ReplicaFetchers
from tidemill.replication.roles import ReplicaRoles
from tidemill.scheduling import ReplicatedStorage, Scheduler
from tidemill.security import throttle_metrics
from tidemill.security.security import make_security
from tidemill.security.tls import peer_context
from tidemill.shares.coordinator import ShareCoordinator
from tidemill.shares.partitions import SharePartitions
from tidemill.supervision.supervisor import Supervisor
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.transactions.coordinator import TransactionCoordinator
from tidemill.transactions.interface import TransactionMarker


def make_broker(
    environment: BrokerEnvironment, settings: BrokerSettings, identity: BrokerIdentity | None = None
) -> BrokerNode:
    """A broker that is ready to start."""
    return _Wiring(environment, settings, identity or BrokerIdentity()).broker


class _Wiring:
    """Makes the parts in the order of their dependencies."""

    def __init__(self, environment: BrokerEnvironment, settings: BrokerSettings, identity: BrokerIdentity) -> None:
        self._environment = environment
        self._settings = settings
        self._identity = identity
        self._is_cluster = environment.coordination.shared
        self._supervisor = Supervisor()
        self._security = make_security(
            environment.coordination,
            settings.security,
            environment.clock_ms,
            is_authorizer_on=is_authorizer_on(settings, identity.listeners),
            node_id=identity.node_id,
            cluster_secret=lambda: self.broker.cluster_secret,
        )
        self._metrics = BrokerMetrics(self._supervisor)
        self._metrics.sources.append(server_readings(self._metrics))
        if environment.tracer is not None:
            self._metrics.sources.append(environment.tracer.readings)
        security = self._security
        self._metrics.sources.append(throttle_metrics.throttle_readings(security.throttle, security.failing_producers))
        self._partitions = Partitions(environment.store)
        self._make_cluster()
        self._make_coordinators()
        self._make_replication()
        self.broker = self._make_broker()
        degradation = Degradation(
            self._partitions,
            self._membership,
            self._supervisor,
            environment.watch,
            lambda: self.broker.timelines,
            lambda: self._loads.verdict,
        )
        self._metrics.sources.append(degradation.readings)

    def _make_cluster(self) -> None:
        environment, settings, identity = self._environment, self._settings, self._identity
        coordination, node_id = environment.coordination, identity.node_id
        self._metadata = ClusterMetadata(coordination, settings.topic_defaults)
        self._deletions = Deletions(
            coordination, self._metadata, self._partitions, node_id=node_id, forget=self._forget_topic
        )
        self._topics = Topics(
            coordination,
            self._metadata,
            self._partitions,
            self._deletions,
            settings=settings,
            node_id=node_id,
            new_id=environment.new_id,
        )
        registration = Registration(
            node_id, environment.new_id(), environment.directory, rack=identity.rack, roles=identity.roles
        )
        self._membership = Membership(
            coordination,
            self._metadata,
            registration,
            ttl_ms=identity.session_ttl_ms,
            new_id=environment.new_id,
            step_down=self._step_down,
        )
        self._view = ClusterView(
            self._metadata,
            self._topics,
            self._partitions,
            node_id=node_id,
            rack=identity.rack,
            is_cluster=self._is_cluster,
            check_session=self._membership.step_down_if_over,
        )

    def _make_coordinators(self) -> None:
        environment, settings = self._environment, self._settings
        self._internal = InternalTopics(
            self._topics,
            self._partitions,
            shapes(settings),
            node_id=self._identity.node_id,
            shared=self._is_cluster,
            look=self._membership.step_down_if_over,
            clock_ms=environment.clock_ms,
        )
        limits = group_limits(settings)
        self._group_overrides = GroupOverrides(environment.coordination, settings, self._group_settings_changed)
        self._groups = GroupCoordinator(
            self._internal.journal(GROUP_OFFSETS),
            topics=self._topic_shapes,
            image_version=lambda: self._view.version,
            make_timers=Timers,
            clock=environment.clock_ms,
            steady=environment.steady_ms,
            new_id=lambda: str(environment.new_id()),
            limits=limits,
            limits_of=lambda group_id: limits_of_group(limits, self._group_overrides.of(group_id)),
            may_expire=self._may_delete_by_time,
            supervisor=self._supervisor,
        )
        self._producer_ids = ProducerIds(environment.coordination)
        self._transactions = TransactionCoordinator(
            self._internal.journal(TRANSACTION_STATE),
            write_marker=self._write_marker,
            new_producer_id=self._producer_ids.take,
            clock=environment.clock_ms,
            steady=environment.steady_ms,
            limits=transaction_limits(settings),
            may_expire=self._may_delete_by_time,
            supervisor=self._supervisor,
        )
        self._share_coordinator = ShareCoordinator(self._internal.journal(SHARE_STATE), environment.clock_ms)
        self._coordinators = CoordinatorLookup(
            self._internal, self._groups, self._transactions, self._share_coordinator
        )
        self._pipeline_reports = PipelineReports(
            self._internal.journal(PIPELINES), clock_ms=environment.clock_ms, may_expire=self._may_delete_by_time
        )
        coordinators: dict[str, Coordinator] = {
            SHARE_STATE: self._share_coordinator,
            GROUP_OFFSETS: self._groups,
            TRANSACTION_STATE: self._transactions,
            PIPELINES: self._pipeline_reports,
        }
        self._placement = CoordinatorPlacement(coordinators, self._internal.led, self._supervisor)

    def _make_replication(self) -> None:
        environment, settings, node_id = self._environment, self._settings, self._identity.node_id
        limits = ReplicaFetchLimits(settings.replica_fetch_wait_max_ms, 1, settings.replica_fetch_response_max_bytes)
        self._peers = Peers(
            node_id,
            self._view.address_of,
            lambda: self.broker.cluster_secret,
            limits,
            self._peer_tls,
            self._metrics.network(BROKERS) if self._is_cluster else None,
        )
        self._group_lag = GroupLags(
            self._view, self._partitions, self._groups, self._peers, node_id=node_id, clock_ms=environment.clock_ms
        )
        self._metrics.sources += [
            self._topics.commands.readings,
            group_readings(self._groups),
            pipeline_readings(self._pipeline_reports, environment.clock_ms),
        ]
        self._metrics.snapshots += [
            topic_readings(self._metrics),
            log_readings(self._partitions),
            self._group_lag.snapshot,
            partition_offsets(self._partitions),
        ]
        self._make_loads()
        self._router = TransactionRouter(
            node_id,
            connect=self._peers.connect,
            coordinator_of=self._coordinators.of_transaction,
            leader_of=self._view.leader_of,
            write_here=partial(write_marker, self._view, self._groups, is_cluster=self._is_cluster),
        )
        self._make_shares()
        states = self._membership.states
        self._metrics.sources.append(cluster_readings(self._metadata, states, node_id, is_cluster=self._is_cluster))
        watch = environment.watch
        if watch is not None:
            self._metrics.sources.append(clock_readings(watch))
        if not self._is_cluster:
            return
        if watch is not None:
            compare_with(watch, self._peers, self._metadata, environment.coordination, node_id)
        self._partitions.replicas = ReplicaRoles(
            node_id,
            self._membership.states,
            ReplicaFetchers(
                self._peers.link,
                settings.replica_fetch_max_bytes,
                self._supervisor,
                tracer=None if environment.tracer is None else environment.tracer.records,
            ),
            lag_max_ms=settings.replica_lag_time_max_ms,
            present=lambda node: node in live_brokers(self._metadata.image),
        )

    def _make_shares(self) -> None:
        environment, node_id = self._environment, self._identity.node_id
        self._share_states = ShareStateRouter(
            node_id,
            self._share_coordinator,
            connect=self._peers.connect,
            coordinator_of=self._coordinators.of_share,
            ensure=lambda: self._internal.ensure(SHARE_STATE),
        )
        share_settings = ShareGroupSettings(self._group_overrides, self._view)
        self._shares = SharePartitions(
            self._share_states,
            share_settings.open_log,
            share_settings.policy,
            share_settings.start,
            clock_ms=environment.clock_ms,
            steady_ms=environment.steady_ms or environment.clock_ms,
        )
        self._share_positions = SharePositions(
            self._shares, self._share_coordinator, self._view, self._partitions, self._coordinators.of_share
        )
        self._metrics.snapshots.append(ShareReadings(self._share_positions, self._shares.counts).snapshot)

    def _make_loads(self) -> None:
        environment, node_id = self._environment, self._identity.node_id
        steady_ms = environment.steady_ms or environment.clock_ms

        def others() -> list[int]:
            brokers = self._metadata.image.brokers.items()
            return [node for node, one in brokers if node != node_id and one.kafka and one.state != INACTIVE]

        membership = self._membership
        self._peer_watch = (
            PeerWatch(self._peers.connect, others, lambda: membership.alive, steady_ms, self._identity.session_ttl_ms)
            if self._is_cluster
            else None
        )
        self._loads = BrokerLoads(
            environment.coordination, self._metadata, membership, LoadMeter(self._metrics), self._peer_watch, steady_ms
        )
        self._metrics.sources.append(load_readings(self._loads))

    def _peer_tls(self) -> ssl.SSLContext | None:
        """The context for connections to other brokers, made for each so that new certificates count; None: no TLS."""
        settings = self._settings
        listener = inter_broker_listener(settings.security, self._identity.listeners)
        if listener is None or not listener.uses_tls:
            return None
        return peer_context(settings.of_listener(listener.name), listener.name)

    def _make_broker(self) -> BrokerNode:
        environment, node_id = self._environment, self._identity.node_id
        clocks = environment.clock_ms, environment.steady_ms or environment.clock_ms
        return BrokerNode(
            environment=environment,
            settings=self._settings,
            identity=self._identity,
            supervisor=self._supervisor,
            security=self._security,
            metrics=self._metrics,
            history=self._make_history(clocks[1]),
            readers=Readers(environment.clock_ms),
            partitions=self._partitions,
            loads=self._loads,
            peer_watch=self._peer_watch,
            metadata=self._metadata,
            topics=self._topics,
            deletions=self._deletions,
            membership=self._membership,
            view=self._view,
            controller=self._make_controller(),
            reassignments=Reassignments(
                self._metadata, self._membership.states, self._topics.carriers, is_shared=self._topics.is_shared
            ),
            consumer_registry=ConsumerRegistry(
                environment.coordination, self._metadata, self._membership, environment.clock_ms
            ),
            appends=LeaderAppends(node_id, self._peers, self._view.leader_of, self._view.partition),
            internal=self._internal,
            groups=self._groups,
            group_overrides=self._group_overrides,
            shares=self._shares,
            share_positions=self._share_positions,
            share_states=self._share_states,
            share_coordinator=self._share_coordinator,
            group_lag=self._group_lag,
            transactions=self._transactions,
            pipeline_reports=self._pipeline_reports,
            transaction_router=self._router,
            transaction_verifier=TransactionVerifier(node_id, self._coordinators, self._transactions, self._router),
            coordinators=self._coordinators,
            placement=self._placement,
            producer_ids=self._producer_ids,
            maintenance=BrokerMaintenance(
                self._partitions, self._settings, *clocks, self._may_delete_by_time, self._supervisor
            ),
            make_scheduler=self._make_scheduler,
            tracer=environment.tracer,
        )

    def _make_history(self, steady_ms: Callable[[], int]) -> BrokerHistory:
        history = BrokerHistory(self._environment.clock_ms, steady_ms)
        history.add(traffic_source(self._metrics))
        history.add(request_source(self._metrics))
        history.add(pipeline_source(self._pipeline_reports, self._environment.clock_ms))
        return history

    def _make_controller(self) -> Controller:
        settings = self._settings
        interval_s = settings.leader_imbalance_check_interval_seconds
        return Controller(
            self._environment.coordination,
            self._metadata,
            self._membership,
            rebalance_s=interval_s if settings.auto_leader_rebalance_enable else None,
            copies={topic: shape.copies for topic, shape in shapes(settings).items()}
            if settings.tidemill_internal_topics_grow_enable
            else {},
            strict=PROMISED,
            is_shared=self._partitions.is_shared,
        )

    def _make_scheduler(self, timelines: Dispatcher) -> Scheduler:
        environment = self._environment
        replicated = None
        if self._is_cluster and not timelines.shared:
            journal = self._internal.journal(WAITING)
            replicated = ReplicatedStorage(journal, lambda: self._internal.led(WAITING), environment.new_id)
        return Scheduler(
            self._view,
            timelines,
            environment.clock_ms,
            node_id=self._identity.node_id,
            send=self.broker.appends.send,
            ensure_internal=self._internal.ensure,
            replicated=replicated,
            supervisor=self._supervisor,
        )

    def _may_delete_by_time(self) -> bool:
        """Whether data may be deleted because it is old; not while the wall clock is in doubt."""
        return self._environment.watch is None or self._environment.watch.may_delete()

    async def _write_marker(self, marker: TransactionMarker) -> None:
        await self._router.write_marker(marker)

    def _step_down(self) -> None:
        self._partitions.step_down()
        self._placement.look()

    def _group_settings_changed(self, group_id: str) -> None:
        self._groups.settings_changed(group_id)

    async def _forget_topic(self, name: str) -> None:
        """Drop what this broker knows about a deleted topic."""
        self._metrics.forget_topic(name)
        await self._groups.topic_deleted(name)
        if self.broker.scheduler is not None:
            await self.broker.scheduler.topic_deleted(name)

    def _topic_shapes(self) -> Iterable[TopicShape]:
        return [TopicShape(topic.name, topic.topic_id, len(topic.partitions)) for topic in self._view.topics()]
