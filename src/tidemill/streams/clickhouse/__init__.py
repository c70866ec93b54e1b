"""Streams as rows of ClickHouse: embedded (chDB) or on servers that own ranges of partitions."""

from tidemill.streams.clickhouse.committer import Run
from tidemill.streams.clickhouse.engine import Engine
from tidemill.streams.clickhouse.errors import EngineError, EngineRefused
from tidemill.streams.clickhouse.store import ClickHouseStore
from tidemill.streams.clickhouse.url import Layout, parse
from tidemill.streams.clickhouse.visiting import visit

__all__ = [
    "ClickHouseStore",
    "Engine",
    "EngineError",
    "EngineRefused",
    "Layout",
    "Run",
    "parse",
    "visit",
]
