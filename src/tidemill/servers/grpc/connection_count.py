"""Counts the TCP connections of the gRPC server for /metrics. The library does not tell, so the system is asked."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from tidemill.model.metrics import Gauge, MetricReading

TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
"""The sockets of the network namespace. Other systems than Linux have no such files."""
SERVER = "grpc"


def established(port: int, tables: Sequence[Path] = TABLES) -> int | None:
    """How many open connections end at a local port; None where the system does not say."""
    # Columns: number, local address and port, remote address and port, state; 01 is ESTABLISHED.
    line = re.compile(rb"^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:[0-9A-F]{4} 01 " % port, re.MULTILINE)
    found = [path.read_bytes() for path in tables if path.exists()]
    return sum(len(line.findall(table)) for table in found) if found else None


def connection_readings(port: int) -> Callable[[bool], Awaitable[Iterator[MetricReading]]]:
    """The connections of the gRPC server at this port."""

    async def snapshot(_: bool) -> Iterator[MetricReading]:
        # The tables can have a hundred thousand lines, so a thread reads them.
        return _readings(await asyncio.to_thread(established, port))

    return snapshot


def _readings(connections: int | None) -> Iterator[MetricReading]:
    if connections is not None:
        yield Gauge("tidemill_connections", "Open connections.", connections, (("server", SERVER),))
