"""An HTTP session whose requests can be ended from another thread.

A collector that accepts a connection and never answers would keep the thread of a stopped broker until the timeout.
"""

import socket
from contextlib import suppress
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class AbortableSession(requests.Session):
    """Closes the sockets of its requests when it is aborted, and opens no others afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: set[socket.socket] = set()
        self._is_aborted = False
        adapter = _RecordingAdapter(self)
        self.mount("http://", adapter)
        self.mount("https://", adapter)

    def opened(self, connected: socket.socket) -> None:
        """Remember the socket of a new connection. A session has one at a time."""
        self._sockets = {each for each in self._sockets if each.fileno() >= 0} | {connected}
        if self._is_aborted:
            _shut_down(connected)

    def abort(self) -> None:
        """End the request that waits for an answer. It fails at once, in its own thread."""
        self._is_aborted = True
        for each in tuple(self._sockets):
            _shut_down(each)


class _RecordingAdapter(HTTPAdapter):
    """Makes connections that tell the session about their sockets."""

    def __init__(self, session: AbortableSession) -> None:
        self._session = session
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        opened = self._session.opened

        class RecordedHttpConnection(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                opened(self.sock)

        class RecordedHttpsConnection(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                opened(self.sock)

        class RecordedHttpPool(HTTPConnectionPool):
            ConnectionCls = RecordedHttpConnection

        class RecordedHttpsPool(HTTPSConnectionPool):
            ConnectionCls = RecordedHttpsConnection

        self.poolmanager.pool_classes_by_scheme = {"http": RecordedHttpPool, "https": RecordedHttpsPool}


def _shut_down(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
