"""Opens storage engines by their URL. This is the only module that names the adapters."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from uuid import uuid4

from tidemill.app.data_directory import TIMELINES
from tidemill.broker.partitions import PartitionStore
from tidemill.broker.storage_router import StorageRouter
from tidemill.broker.topic_directories import STREAMS, MemoryTopics, TopicDirectories
from tidemill.cluster.interface import Coordination, CoordinationAway
from tidemill.cluster.local import LocalCoordination
from tidemill.model.errors import InvalidConfig
from tidemill.model.metrics import Histogram, NetworkTraffic
from tidemill.model.storage_queries import StorageQueries
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.model.topic_settings import IN_SEGMENTS, IN_TABLES
from tidemill.settings import Settings, shown
from tidemill.streams.memory import MemoryLogStore
from tidemill.streams.segments import SegmentStore
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.memory import MemoryTimelineStore as TimelinesInMemory
from tidemill.timelines.sqlite import open_store
from tidemill.timelines.sqlite.leaving import is_leaving

if TYPE_CHECKING:
    from tidemill.cluster.etcd.url import EtcdUrl
    from tidemill.streams.clickhouse import ClickHouseStore, Engine
    from tidemill.timelines.postgres.probe import PostgresProbe

EMBEDDED = "chdb"
TABLES_OF_STREAMS = Path(EMBEDDED) / "metadata" / "tidemill.sql"
"""Exists once a topic has been stored in tables. SQL queries also open the engine, but do not create this file."""


async def open_coordination(settings: Settings, traffic: NetworkTraffic | None = None) -> Coordination:
    """Open the coordination backend of a node, which counts what it exchanges with servers."""
    return await open_coordination_at(settings.coordination, settings.data_dir, traffic)


async def open_coordination_at(url: str, data_dir: Path, traffic: NetworkTraffic | None = None) -> Coordination:
    """Open the coordination backend of a URL. The etcd libraries are loaded only for etcd URLs."""
    if url.startswith(("etcd:", "etcds:")):
        return await _open_etcd(url, traffic)
    return await LocalCoordination.open(data_dir)


def etcd_address(url: str) -> "EtcdUrl":
    """Parse the address of etcd. InvalidConfig says what is wrong with it."""
    address: EtcdUrl = import_module("tidemill.cluster.etcd").parse(url)
    return address


async def _open_etcd(url: str, traffic: NetworkTraffic | None) -> Coordination:
    try:
        etcd = await asyncio.to_thread(import_module, "tidemill.cluster.etcd")
    except ModuleNotFoundError as error:
        raise InvalidConfig(f"etcd needs one more package: pip install 'tidemill[cluster]' ({error})") from None
    coordination: Coordination = etcd.EtcdCoordination(url, traffic=traffic)
    try:
        await coordination.get("cluster-id")
    except CoordinationAway as error:
        await coordination.close()
        raise CoordinationAway(f"{error}; check that it runs and that --coordination is correct") from None
    return coordination


async def open_timelines(settings: Settings) -> TimelineStore:
    """Open the timeline store. Only the library of the chosen engine is loaded."""
    url = settings.timelines
    if url.startswith("memory:"):
        return TimelinesInMemory()
    if url.startswith(("postgresql:", "postgres:")):
        return await _open_postgres(url)
    path = timelines_file(settings)
    if path is None:
        raise InvalidConfig(
            f"--timelines {shown(url)} is not supported; use sqlite:, memory:, replicated: or postgresql://..."
        )
    if await asyncio.to_thread(is_leaving, path):
        raise InvalidConfig(
            f"the messages of {path} are moving to the other brokers, and some may be there already; start with "
            "--timelines replicated: to finish that"
        )
    return await open_store(path)


def timelines_engine(settings: Settings) -> str:
    """The name of the engine of the timelines, for metrics."""
    kind = settings.timelines.partition(":")[0]
    return {"memory": "memory", "replicated": "replicated", "postgresql": "postgres", "postgres": "postgres"}.get(
        kind, "sqlite"
    )


def timelines_file(settings: Settings) -> Path | None:
    """The SQLite file of the timelines. None when another engine stores them."""
    url = settings.timelines
    if url.startswith(("memory:", "replicated:", "postgresql:", "postgres:")):
        return None
    path = url.removeprefix("sqlite:").removeprefix("//")
    return (Path(path) if path else settings.data_dir / TIMELINES).absolute()


async def _open_postgres(url: str) -> TimelineStore:
    try:
        postgres = await asyncio.to_thread(import_module, "tidemill.timelines.postgres")
    except ModuleNotFoundError as error:
        raise InvalidConfig(f"PostgreSQL needs one more package: pip install 'tidemill[postgres]' ({error})") from None
    try:
        store: TimelineStore = await postgres.open_store(url)
    except StoreUnavailable as error:
        raise StoreUnavailable(f"{error}; check that {shown(url)} runs and that --timelines is correct") from None
    except ValueError as error:
        raise InvalidConfig(f"{shown(url)} is not a PostgreSQL address: {error}; correct --timelines") from None
    return store


async def visit_timelines(url: str) -> "PostgresProbe":
    """Probe the PostgreSQL server at an address. StoreUnavailable says what is wrong."""
    found: PostgresProbe = await import_module("tidemill.timelines.postgres.probe").visit(url)
    return found


class Tables:
    """The ClickHouse engine of this process, opened once, on first use. Embedded unless streams are on servers."""

    def __init__(self, settings: Settings, clock_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._clock_ms = clock_ms
        self.is_clock_trusted: Callable[[], bool] = lambda: True
        self.run_id = uuid4().hex
        self._in_tables = settings.streams.startswith(("chdb:", "clickhouse:"))
        self._opening = asyncio.Lock()
        self._engine: Engine | None = None

    def exist(self) -> bool:
        """Whether tables may hold data."""
        return self._in_tables or self._engine is not None or (self._settings.data_dir / TABLES_OF_STREAMS).exists()

    async def engine(self) -> "Engine":
        """The engine, opened on the first call."""
        async with self._opening:
            if self._engine is None:
                # The libraries take a second to load. A thread loads them, so that the event loop can serve clients.
                tables = await asyncio.to_thread(load_tables)
                url = self._settings.streams if self._in_tables else f"{EMBEDDED}:"
                self._engine = tables.Engine(tables.parse(url, self._settings.data_dir))
        return self._engine

    def queries(self) -> list[StorageQueries]:
        """The counts of queries, once the engine is open."""
        return [] if self._engine is None else [self._engine.queries]

    async def warm_up(self, cluster_id: str) -> None:
        """Open the engine of the streams before clients connect. The partitions of an unreachable server wait for it.

        InvalidConfig when a server rejects the login, or its database belongs to another cluster: a retry would not
        help.
        """
        if not self._in_tables:
            return
        engine = await self.engine()
        engine.owner = cluster_id
        try:
            await engine.prepare_all()
        except load_tables().EngineRefused as error:
            raise InvalidConfig(str(error)) from None

    async def servers(self) -> str:
        """The location of the streams, for comparison between brokers. Empty when they are on this machine."""
        return "" if self.is_embedded() else (await self.engine()).layout.place

    async def logs(self) -> "ClickHouseStore":
        """The log store in the tables."""
        tables = await asyncio.to_thread(load_tables)
        run = tables.BrokerRun(str(self._settings.node_id), self.run_id)
        store: ClickHouseStore = tables.ClickHouseStore(
            await self.engine(), self._clock_ms, run, is_clock_trusted=self.is_clock_trusted
        )
        return store

    def is_embedded(self) -> bool:
        """Whether tables are in the engine embedded in this process."""
        return not self._settings.streams.startswith("clickhouse:")

    async def close(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            await self._engine.close()


def load_tables() -> ModuleType:
    """Import the ClickHouse adapter. InvalidConfig says what to install."""
    try:
        return import_module("tidemill.streams.clickhouse")
    except ModuleNotFoundError as error:
        raise InvalidConfig(f"tables need more packages: pip install 'tidemill[clickhouse]' ({error})") from None


def open_streams(
    settings: Settings,
    clock_ms: Callable[[], int],
    tables: Tables,
    *,
    had_manifest: bool,
    flush_duration: Histogram | None = None,
) -> PartitionStore:
    """Open the store of partitions. `had_manifest`: the data directory had a manifest at an earlier start."""
    if settings.streams.startswith("memory:"):
        return MemoryTopics(MemoryLogStore, clock_ms)
    logs = SegmentStore.at(settings.data_dir / STREAMS, flush_duration)
    files = TopicDirectories(settings.data_dir, logs, clock_ms, had_manifest=had_manifest)
    default = IN_SEGMENTS if settings.streams.startswith("segments:") else IN_TABLES
    return StorageRouter(
        settings.data_dir,
        files,
        tables.logs,
        tables.exist,
        clock_ms,
        default=default,
        on_servers=not tables.is_embedded(),
    )
