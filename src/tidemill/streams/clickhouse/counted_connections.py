"""Counts the bytes of the HTTP connections to ClickHouse servers."""

from typing import Any

from tidemill.tcp_connections import TcpTraffic, bytes_of_socket


def count_connections(pools: Any, traffic: TcpTraffic) -> None:
    """Count all connections that a pool manager of urllib3 opens from now on; it closes those that it has."""
    from urllib3.connection import HTTPConnection, HTTPSConnection  # noqa: PLC0415 -- it comes with the optional extra
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool  # noqa: PLC0415

    class CountedConnection(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            _watch(self.sock, traffic)

    class CountedSecureConnection(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            _watch(self.sock, traffic)

    class CountedPool(HTTPConnectionPool):
        ConnectionCls = CountedConnection

    class CountedSecurePool(HTTPSConnectionPool):
        ConnectionCls = CountedSecureConnection

    pools.pool_classes_by_scheme = {"http": CountedPool, "https": CountedSecurePool}
    pools.clear()


def _watch(connected: Any, traffic: TcpTraffic) -> None:
    traffic.watch(lambda: bytes_of_socket(connected))
