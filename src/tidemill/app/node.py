"""The node: starts and stops one broker with its Kafka, gRPC and HTTP servers, from the settings.

Order of start: the lock of the data directory, coordination, the broker, then the servers. No client connects before
everything acknowledged can be read. Order of stop: the servers first, which accept no new requests and wait a bounded
time for those in progress, then the broker. A start that fails stops the started parts in the same order.
"""

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from secrets import SystemRandom
from shutil import disk_usage
from types import ModuleType
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import structlog

from tidemill import __version__
from tidemill.app import logs
from tidemill.app.broker_wiring import make_broker
from tidemill.app.certificate_watch import CertificateWatch
from tidemill.app.clock_watch import open_watch
from tidemill.app.clocks import SystemClocks
from tidemill.app.data_directory import DataDirectory
from tidemill.app.disk_space import DiskSpace
from tidemill.app.engines import (
    Tables,
    open_coordination,
    open_streams,
    open_timelines,
    timelines_engine,
    timelines_file,
)
from tidemill.app.exposure import check_exposure, check_token_settings, has_tls, warn_without_administrator
from tidemill.app.lazy_sql import LazySql
from tidemill.app.lock import DataDirLock
from tidemill.app.otlp.environment import OtelEnvironment, read_environment
from tidemill.app.process_metrics import ProcessMetrics
from tidemill.broker.broker import BrokerEnvironment, BrokerIdentity, BrokerNode, ServerAddresses
from tidemill.broker.identity import same_servers
from tidemill.broker.metrics import COORDINATION
from tidemill.broker.storage_metrics import storage_readings
from tidemill.broker.timeline_metrics import dead_letter_writer
from tidemill.clocks.watch import ClockWatch
from tidemill.cluster.core.registration import Endpoint
from tidemill.cluster.interface import Coordination
from tidemill.model.addresses import Address
from tidemill.model.errors import InvalidConfig, TidemillError
from tidemill.model.listeners import (
    HTTP,
    ListenerSpec,
    ServerSecurity,
    inter_broker_listener,
    is_wildcard,
    server_security,
)
from tidemill.model.metrics import NetworkTraffic
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.servers.http.server import HttpServer
from tidemill.servers.kafka.listener import KafkaServer
from tidemill.settings import ROLES, Settings, shown
from tidemill.timelines.clock import Clock
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.measured_store import MeasuredTimelineStore
from tidemill.tracing.tracer import BrokerTracer

if TYPE_CHECKING:
    from tidemill.app.otlp.exporter import OtlpExporter

TIMELINES_FREE_BYTES_MIN = 1 << 20
"""With less free space than this, a full disk is the assumed reason when the timelines file cannot be opened."""
GRPC_SERVER = "tidemill.servers.grpc.server"
REPLICATED_MODULE = "tidemill.app.replicated_timelines"
OTLP_MODULE = "tidemill.app.otlp.exporter"
GROUP_TABLES = "tidemill.broker.group_tables"

log = structlog.get_logger("tidemill.app")


class RunningServer(Protocol):
    """A server that accepts connections at `address`, the address that it was bound to."""

    address: tuple[str, int]

    async def close(self) -> None:
        """Accept no more connections and end the open ones, in bounded time."""


class ServerUnavailable(TidemillError):
    """A server cannot listen on its address."""


class Node:
    """One broker process, or one broker in a thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.kafka: Address | None = None
        self.listening: Mapping[str, Address] = {}
        self.grpc: Address | None = None
        self.http: Address | None = None
        self._times = SystemClocks()
        self.tables = Tables(settings, self._times.now_ms)
        self._opened = AsyncExitStack()
        self._servers = AsyncExitStack()
        self._sql = LazySql(settings, self.tables, lambda: self.broker)
        self._servers.push_async_callback(self._sql.close)
        self._broker: BrokerNode | None = None
        self._metrics = ProcessMetrics()
        self._grpc_module: asyncio.Future[ModuleType]
        self._otlp_module: ModuleType
        self._tracer: BrokerTracer | None = None
        self._started_ns = time.time_ns()

    @property
    def broker(self) -> BrokerNode:
        """The broker of a node that has been started."""
        if self._broker is None:
            raise RuntimeError("the node has not been started")
        return self._broker

    async def advance(self, ms: int) -> None:
        """Advance the clock (tests only): messages that become due are delivered now."""
        self._times.ahead_ms += ms
        if self.broker.timelines is not None:
            self.broker.timelines.look_again()

    async def start(self) -> None:
        """Start the broker and its servers; clients can connect when this returns."""
        try:
            await self._start()
        except BaseException:
            await self._opened.aclose()
            raise

    async def stop(self) -> None:
        """Stop the servers, then the broker; everything is on disk when this returns."""
        await self._opened.aclose()

    @property
    def ready_line(self) -> str:
        """The line that `tidemill serve` prints when it is ready."""
        kafka = str(self.kafka or "none")
        if self.settings.broker.security.listeners:
            kafka = ",".join(f"{name}://{address}" for name, address in self.listening.items())
        http = (self.http_url if self.http_security.uses_tls else self.http) or "none"
        line = f"tidemill ready kafka={kafka} grpc={self.grpc or 'none'} http={http}"
        return f"{line} allow.anonymous=true" if self.settings.broker.security.allow_anonymous else line

    @property
    def http_security(self) -> ServerSecurity:
        """The security of the HTTP server."""
        return server_security(HTTP, self.settings.broker, self.settings.listeners)

    @property
    def http_url(self) -> str | None:
        """The URL of the console."""
        return None if self.http is None else f"http{'s' if self.http_security.uses_tls else ''}://{self.http}"

    def facts(self) -> Mapping[str, str]:
        """Version, addresses and storage of this node, for the console and the log."""
        settings = self.settings
        return {
            "version": __version__,
            "node": str(settings.node_id),
            "cluster": self.broker.cluster_id,
            "roles": ", ".join(settings.roles),
            "kafka": str(self.kafka or "off"),
            "grpc": str(self.grpc or "off"),
            "http": str(self.http or "off"),
            "data directory": str(settings.data_dir.absolute()),
            "coordination": shown(settings.coordination),
            "streams": shown(settings.streams),
            "timelines": shown(settings.timelines),
        }

    async def _start(self) -> None:
        settings = self.settings
        check_exposure(settings)
        check_token_settings(settings)
        otel = await self._load_otel()
        lock = DataDirLock(settings.data_dir)
        self._opened.callback(lock.release)
        if settings.grpc is not None:
            # gRPC takes longer to load than everything else, so a thread loads it while the broker waits for the disk.
            self._grpc_module = asyncio.ensure_future(asyncio.to_thread(import_module, GRPC_SERVER))
        directory = DataDirectory(settings.data_dir, settings.node_id)
        if settings.roles != ROLES and settings.coordination.startswith("local:"):
            raise InvalidConfig("a single broker needs both roles: leave --roles out, or set --coordination etcd://")
        watch = open_watch(
            settings, self._times
        )  # first, because opening the stores changes files that the watch reads
        self.tables.is_clock_trusted = watch.may_delete
        traffic = NetworkTraffic()
        coordination = await open_coordination(settings, traffic)
        self._opened.push_async_callback(coordination.close)
        self._opened.push_async_callback(self.tables.close)
        self._opened.push_async_callback(watch.close)
        self._broker = broker = make_broker(
            self._environment(coordination, directory, watch), settings.broker, self._identity()
        )
        self._opened.push_async_callback(broker.stop)
        broker.metrics.sources += [self._metrics.readings, storage_readings(self.tables.queries)]
        broker.history.add(self._metrics.usage())
        if coordination.shared:
            broker.metrics.networks[COORDINATION] = traffic
        self._opened.callback(broker.supervisor.keep("event loop delay", self._metrics.sample).cancel)
        disk = DiskSpace(settings.data_dir)
        broker.metrics.sources.append(disk.readings)
        broker.loads.meter.usage = lambda: self._metrics.counted(disk.used_share())
        self._opened.callback(broker.supervisor.keep("disk space", disk.sample).cancel)
        watch.start(broker.supervisor)
        self._directory = directory
        await broker.start(self)
        if otel is not None:
            self._opened.push_async_callback(self._export(otel, broker).close)
        warn_without_administrator(settings, broker.security.users)
        if has_tls(settings):
            certificates = CertificateWatch(settings, self._times.now_ms, broker)
            broker.metrics.sources.append(certificates.readings)
            self._opened.callback(broker.supervisor.keep("certificates", certificates.run).cancel)
        log.info("started", **{name.replace(" ", "_"): value for name, value in self.facts().items()})

    async def _load_otel(self) -> OtelEnvironment | None:
        """What OpenTelemetry's variables say, if anything is exported. A thread loads the library."""
        settings = self.settings
        if not (settings.otel_metrics or settings.otel_traces):
            return None
        environment = read_environment(os.environ)
        if environment.is_disabled:
            log.info("otel_disabled", by="OTEL_SDK_DISABLED")
            return None
        try:
            self._otlp_module = await asyncio.to_thread(import_module, OTLP_MODULE)
        except ModuleNotFoundError as error:
            raise InvalidConfig(
                f"--otel-metrics and --otel-traces need more packages; install them with: "
                f"pip install 'tidemill[otel]' ({error})"
            ) from None
        if settings.otel_traces:
            self._tracer = BrokerTracer(
                environment.sampler, time.time_ns, SystemRandom().getrandbits, environment.queue_spans_max
            )
        return environment

    def _export(self, environment: OtelEnvironment, broker: BrokerNode) -> "OtlpExporter":
        """Start to send metrics and traces."""
        attributes = {
            "service.name": "tidemill",
            "service.version": __version__,
            "service.instance.id": f"{broker.cluster_id}/{broker.node_id}",
        }
        exporter: OtlpExporter = self._otlp_module.OtlpExporter(
            broker.supervisor, environment, attributes, self._started_ns
        )
        if self._tracer is not None:
            exporter.export_spans(self._tracer.queue)
        if self.settings.otel_metrics:
            exporter.export_metrics(broker.metrics)
        return exporter

    async def open(self, broker: BrokerNode) -> ServerAddresses:
        """Open the servers."""
        await self._record_groups(broker)
        await self._open_servers(broker)
        return ServerAddresses(
            self._reachable(self.grpc, self.settings.advertise_grpc),
            self._reachable(self.http, self.settings.advertise_http),
        )

    async def close(self) -> None:
        """Close the servers, the recorder of groups and the query processes."""
        await self._servers.aclose()

    def _environment(
        self, coordination: Coordination, directory: DataDirectory, watch: ClockWatch
    ) -> BrokerEnvironment:
        had_manifest = directory.had_manifest
        store = open_streams(
            self.settings,
            self._times.now_ms,
            self.tables,
            had_manifest=had_manifest,
            flush_duration=self._metrics.flush_duration,
        )
        belong = partial(self._belong, coordination, directory)
        times = self._times
        return BrokerEnvironment(
            coordination,
            store,
            times.now_ms,
            uuid4,
            directory.id,
            times.steady_ms,
            belong,
            watch,
            self._tracer,
            logs.RECENT,
        )

    async def _belong(self, coordination: Coordination, directory: DataDirectory, cluster_id: str) -> None:
        directory.belong(cluster_id)
        if coordination.shared:
            await same_servers(coordination, await self.tables.servers())
        await self.tables.warm_up(cluster_id)

    def _identity(self) -> BrokerIdentity:
        settings = self.settings
        return BrokerIdentity(
            settings.node_id,
            settings.rack,
            settings.roles,
            settings.session_ttl_ms,
            settings.cluster_secret,
            settings.admin_password,
            settings.listeners,
            settings.metrics_labels,
        )

    def _reachable(self, bound: Address | None, wanted: Address | None) -> Address | None:
        """The address for clients: a server that listens on all interfaces is reached at the advertised host."""
        if bound is not None and wanted is not None:
            return wanted if wanted.port else Address(wanted.host, bound.port)
        if bound is None or self.kafka is None or not is_wildcard(bound.host):
            return bound
        return Address(self.broker.view.address[0], bound.port)

    def _http_names(self) -> tuple[str, ...]:
        """Host names that the HTTP server accepts; other brokers use the advertised host."""
        every = (self.settings.advertise, self.settings.advertise_http)
        return (*self.settings.http_hosts, *(each.host for each in every if each is not None))

    async def _record_groups(self, broker: BrokerNode) -> None:
        """Write groups to tables on ClickHouse servers; an embedded engine reads them from the broker instead."""
        if self.tables.is_embedded():
            return
        module = await asyncio.to_thread(import_module, GROUP_TABLES)
        tokens = f"tidemill-{self.settings.node_id}-{self.tables.run_id}-"
        recorder = module.GroupRecorder(broker, await self.tables.engine(), tokens)
        broker.metrics.sources.append(recorder.readings)
        self._servers.push_async_callback(recorder.close)
        recorder.start()

    async def open_timelines(self, broker: BrokerNode) -> Dispatcher | None:
        """Open the timelines of a broker that carries messages."""
        directory = self._directory
        directory.note_manifest()
        if not broker.carries:
            return None  # an overseer has no messages; its servers redirect clients to the carriers
        file = timelines_file(self.settings)
        if file is not None:
            directory.check_timelines(file)
        opened = await self._open_timeline_store(broker, file)
        store = MeasuredTimelineStore(opened, timelines_engine(self.settings))
        broker.metrics.sources.append(storage_readings(lambda: (store.queries,)))
        if file is not None:
            directory.note_timelines(file)
        append = dead_letter_writer(broker.view, broker.topics, broker.appends, self._times.now_ms)
        watch = broker.clock
        clock = Clock(
            self._times.wall_ns,
            self._times.passed_ns,
            real_ns=time.time_ns,
            trusted=(lambda: True) if watch is None else (lambda: watch.trusted),
            start_ms=None if watch is None else watch.steady_ms(),
        )
        dispatcher = Dispatcher(
            store,
            clock,
            SystemRandom(),
            append=append,
            registry=broker.consumer_registry,
            trust=watch,
            supervisor=broker.supervisor,
        )
        if watch is not None:
            watch.listeners.append(dispatcher.check_clock)
        try:
            await dispatcher.open()
        except BaseException:
            await dispatcher.close()
            raise
        return dispatcher

    async def _open_timeline_store(self, broker: BrokerNode, file: Path | None) -> TimelineStore:
        """Open the timelines; SQLite needs free space for it, so a full disk gets the reserved space of the broker."""
        if self.settings.timelines.startswith("replicated:"):
            module = await asyncio.to_thread(import_module, REPLICATED_MODULE)
            replicated: TimelineStore = await module.open_replicated(self.settings, broker)
            return replicated
        try:
            return await open_timelines(self.settings)
        except StoreUnavailable as error:
            full = file is not None and disk_usage(file.parent).free < TIMELINES_FREE_BYTES_MIN
            if not full or not await broker.partitions.store.free_reserve():
                raise
            log.warning("timelines_opened_in_reserved_space", error=str(error))
            return await open_timelines(self.settings)

    async def _open_servers(self, broker: BrokerNode) -> None:
        settings = self.settings
        if settings.listeners:
            await self._open_kafka(broker)
        if settings.grpc is not None:
            grpc = (await self._grpc_module).GrpcServer(broker)
            self.grpc = await self._open("grpc", grpc, settings.grpc, grpc.start)
        if settings.http is not None:
            console = HttpServer(
                broker,
                self.facts,
                self._sql,
                names=self._http_names(),
                security=self.http_security,
                is_readonly=settings.console_readonly,
            )
            self.http = await self._open("http", console, settings.http, console.start)

    async def _open_kafka(self, broker: BrokerNode) -> None:
        """Open the Kafka listeners. Clients get the address of the listener that they have connected to."""
        settings = self.settings
        kafka = KafkaServer()
        kafka.prepare(broker)
        self._servers.push_async_callback(kafka.close)
        between_brokers = inter_broker_listener(settings.broker.security, settings.listeners) or settings.listeners[0]
        # A client that connects before all listeners are open gets the addresses of the settings.
        bound = {each.name: each.bind for each in settings.listeners}
        self._advertise(broker, bound, between_brokers)
        for each in settings.listeners:
            with _explained("kafka", each.bind):
                bound[each.name] = await kafka.listen(each, *each.bind)
        self.listening = bound
        self.kafka = bound[between_brokers.name]
        self._advertise(broker, bound, between_brokers)
        for each in settings.listeners:
            if is_wildcard(each.bind.host) and each.advertised is None:
                log.warning(
                    "advertised_address_is_local",
                    listener=each.name,
                    advertised=str(_advertised(each, bound[each.name])),
                    next_step="--advertise host:port or advertised.listeners, for clients on other machines",
                )

    def _advertise(self, broker: BrokerNode, bound: Mapping[str, Address], between_brokers: ListenerSpec) -> None:
        every = {each.name: Endpoint(*_advertised(each, bound[each.name])) for each in self.settings.listeners}
        broker.view.advertise(*every[between_brokers.name], every)

    async def _open(
        self, name: str, server: RunningServer, at: Address, start: Callable[[str, int], Awaitable[None]]
    ) -> Address:
        with _explained(name, at):
            await start(at.host, at.port)
        self._servers.push_async_callback(server.close)
        return Address(*server.address)


@contextmanager
def _explained(name: str, at: Address) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be opened: {error.strerror or error}"
        raise ServerUnavailable(f"{name} address {at} {reason}; choose another with --{name} host:port") from None


def _advertised(listener: ListenerSpec, bound: Address) -> Address:
    """The Kafka address for clients: the setting, or else the address that the listener is bound to.

    A wildcard address cannot be connected to, so it becomes localhost. This suits a published container port, the
    common case. For clients on other machines, a warning in the log names the setting.
    """
    wanted = listener.advertised
    if wanted is not None:
        return wanted if wanted.port else Address(wanted.host, bound.port)
    return Address("localhost", bound.port) if is_wildcard(bound.host) else bound
