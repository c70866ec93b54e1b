"""Engines by their URL: the one place that names adapters."""

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
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.model.topic_settings import IN_SEGMENTS, IN_TABLES
from tidemill.settings import Settings, shown
from tidemill.streams.memory import MemoryLogStore
from tidemill.streams.segments import SegmentStore
from tidemill.timelines.interface import TimelineStore
from tidemill.timelines.memory import MemoryTimelineStore as TimelinesInMemory
from tidemill.timelines.sqlite import open_store

if TYPE_CHECKING:
    from tidemill.cluster.etcd.url import EtcdUrl
    from tidemill.streams.clickhouse import ClickHouseStore, Engine
    from tidemill.timelines.postgres.probe import PostgresProbe

EMBEDDED = "chdb"
TABLES_OF_STREAMS = Path(EMBEDDED) / "metadata" / "tidemill.sql"
"""There since the first topic in tables; questions in SQL open the engine, too, and leave none."""


async def open_coordination(settings: Settings) -> Coordination:
    """Where brokers agree; what etcd needs is loaded only for it."""
    if settings.coordination.startswith(("etcd:", "etcds:")):
        return await _open_etcd(settings.coordination)
    return await LocalCoordination.open(settings.data_dir)


def etcd_address(url: str) -> "EtcdUrl":
    """The parts of the address of etcd, for who wants to look at it; InvalidConfig says what is wrong with it."""
    address: EtcdUrl = import_module("tidemill.cluster.etcd").parse(url)
    return address


async def _open_etcd(url: str) -> Coordination:
    try:
        etcd = await asyncio.to_thread(import_module, "tidemill.cluster.etcd")
    except ModuleNotFoundError as error:
        raise InvalidConfig(f"etcd needs one more package: pip install 'tidemill[cluster]' ({error})") from None
    coordination: Coordination = etcd.EtcdCoordination(url)
    try:
        await coordination.get("cluster-id")
    except CoordinationAway as error:
        await coordination.close()
        raise CoordinationAway(f"{error}; is it running, and is --coordination right?") from None
    return coordination


async def open_timelines(settings: Settings) -> TimelineStore:
    """Where timelines are kept; only the engine that is asked for is loaded."""
    url = settings.timelines
    if url.startswith("memory:"):
        return TimelinesInMemory()
    if url.startswith(("postgresql:", "postgres:")):
        return await _open_postgres(url)
    path = timelines_file(settings)
    if path is None:
        raise InvalidConfig(f"{shown(url)} is no place for timelines; see --timelines")
    return await open_store(path)


def timelines_file(settings: Settings) -> Path | None:
    """The SQLite file that timelines are kept in; None when they are elsewhere."""
    url = settings.timelines
    if url.startswith(("memory:", "postgresql:", "postgres:")):
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
        raise StoreUnavailable(f"{error}; does {shown(url)} answer, and is --timelines right?") from None
    except ValueError as error:
        raise InvalidConfig(f"{shown(url)} is no address of PostgreSQL: {error}; mend --timelines") from None
    return store


async def visit_timelines(url: str) -> "PostgresProbe":
    """What answers at the address of a PostgreSQL; StoreUnavailable says what is wrong."""
    found: PostgresProbe = await import_module("tidemill.timelines.postgres.probe").visit(url)
    return found


class Tables:
    """ClickHouse for this process: opened on first use, once; embedded unless streams are on servers."""

    def __init__(self, settings: Settings, clock_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._clock_ms = clock_ms
        self.is_clock_trusted: Callable[[], bool] = lambda: True
        self.run_id = uuid4().hex
        self._in_tables = settings.streams.startswith(("chdb:", "clickhouse:"))
        self._opening = asyncio.Lock()
        self._engine: Engine | None = None

    def exist(self) -> bool:
        """Whether there may be something in tables."""
        return self._in_tables or self._engine is not None or (self._settings.data_dir / TABLES_OF_STREAMS).exists()

    async def engine(self) -> "Engine":
        """The engine; its tables are made before the first question."""
        async with self._opening:
            if self._engine is None:
                # The libraries take a second to load: in a thread, so that clients are served meanwhile.
                tables = await asyncio.to_thread(load_tables)
                url = self._settings.streams if self._in_tables else f"{EMBEDDED}:"
                self._engine = tables.Engine(tables.parse(url, self._settings.data_dir))
        return self._engine

    async def warm_up(self, cluster_id: str) -> None:
        """Open what streams are kept in, before clients come; a server that is away is waited for by its partitions.

        What a server refuses it will refuse again: a login, or a database that belongs to another cluster of brokers.
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
        """Where streams are, for whoever compares; empty when they are on this machine."""
        return "" if self.is_embedded() else (await self.engine()).layout.place

    async def logs(self) -> "ClickHouseStore":
        """Logs in the tables."""
        tables = await asyncio.to_thread(load_tables)
        run = tables.Run(str(self._settings.node_id), self.run_id)
        store: ClickHouseStore = tables.ClickHouseStore(
            await self.engine(), self._clock_ms, run, is_clock_trusted=self.is_clock_trusted
        )
        return store

    def is_embedded(self) -> bool:
        """Whether records in tables are in the engine of this process."""
        return not self._settings.streams.startswith("clickhouse:")

    async def close(self) -> None:
        """Let go of the engine."""
        if self._engine is not None:
            await self._engine.close()


def load_tables() -> ModuleType:
    """The home of ClickHouse's libraries; InvalidConfig says what to install."""
    try:
        return import_module("tidemill.streams.clickhouse")
    except ModuleNotFoundError as error:
        raise InvalidConfig(f"tables need more packages: pip install 'tidemill[clickhouse]' ({error})") from None


def open_streams(
    settings: Settings, clock_ms: Callable[[], int], tables: Tables, *, had_manifest: bool
) -> PartitionStore:
    """Where partitions are kept; `had_manifest`: the data directory had a manifest before."""
    if settings.streams.startswith("memory:"):
        return MemoryTopics(MemoryLogStore, clock_ms)
    logs = SegmentStore.at(settings.data_dir / STREAMS)
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
