"""Stores streams as ClickHouse rows: embedded (chDB), or on servers that own ranges of partitions."""

from tidemill.streams.clickhouse.committer import BrokerRun
from tidemill.streams.clickhouse.engine import Engine
from tidemill.streams.clickhouse.errors import EngineError, EngineRefused
from tidemill.streams.clickhouse.probe import visit
from tidemill.streams.clickhouse.schema import definitions
from tidemill.streams.clickhouse.store import ClickHouseStore
from tidemill.streams.clickhouse.url import ServerLayout, parse

__all__ = [
    "BrokerRun",
    "ClickHouseStore",
    "Engine",
    "EngineError",
    "EngineRefused",
    "ServerLayout",
    "definitions",
    "parse",
    "visit",
]
