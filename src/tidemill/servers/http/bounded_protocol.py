"""The HTTP protocol of uvicorn, with a limit on every size and every wait that a client controls.

uvicorn limits neither the bytes of a head or a trailer, nor the time of a request and of reading its answer. A few
clients that send forever, or nothing, would take the memory and the sockets of the whole broker.
"""

from asyncio import Transport
from asyncio.events import TimerHandle
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidemill.broker.metrics import HTTP_CLIENTS, BrokerMetrics
from tidemill.model.listeners import HTTP
from tidemill.security.core.principal import ANONYMOUS, Principal
from tidemill.tcp_connections import round_trip_s

REQUEST_BYTES_MAX = 1024 * 1024
"""The most bytes of one request: its head, its body and its trailer."""
HEAD_BYTES_MAX = 64 * 1024
"""The most bytes of a request before its headers are complete: they are kept before the client is known."""
RECEIVE_S = 30.0
"""The longest time from the first byte of a request, or from the connection, to the end of the request."""
STALL_S = 60.0
"""How long an answer waits for a client that does not read it."""
CERTIFICATE_USER = "certificate_user"
"""The key in the state of a request for the principal of the client's certificate."""

Identify = Callable[[Transport], Principal | None]
"""The principal of the client's certificate: ANONYMOUS without one, None for a name that is not accepted."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, identify: Identify, metrics: BrokerMetrics, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._metrics = metrics
        self._identify = identify
        self._certificate_user = ANONYMOUS
        self._received_bytes = 0
        self._has_head = False
        self._receiving = _Deadline(self)
        self._writing = _Deadline(self)

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin to receive, or close a connection whose certificate has a name that is not accepted."""
        super().connection_made(transport)
        self._metrics.connection_opened(HTTP)
        found = self._identify(transport)
        if found is None:
            transport.abort()
            return
        self._certificate_user = found
        self._receiving.begin(RECEIVE_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers of a closed connection."""
        self._metrics.connection_closed(HTTP)
        self._receiving.end()
        self._writing.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive bytes of a request."""
        self._metrics.network(HTTP_CLIENTS).bytes_in += len(data)
        self._received_bytes += len(data)
        self._receiving.begin(RECEIVE_S)
        super().data_received(data)
        if self._received_bytes > (REQUEST_BYTES_MAX if self._has_head else HEAD_BYTES_MAX):
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Note in each request who the certificate of its connection belongs to."""
        super().on_message_begin()
        self._has_head = False
        self.scope["state"][CERTIFICATE_USER] = self._certificate_user

    def on_headers_complete(self) -> None:
        """Begin to receive a body, which may be larger."""
        self._has_head = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the deadline of a request that has fully arrived, and count the round trip to its client."""
        found_s = round_trip_s(self.transport)
        if found_s is not None:
            self._metrics.network(HTTP_CLIENTS).latency.add(found_s)
        self._received_bytes = 0
        self._has_head = False
        self._receiving.end()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Start a deadline, because the client does not read its answer."""
        super().pause_writing()
        self._writing.begin(STALL_S)

    def resume_writing(self) -> None:
        """End the deadline, because the client reads again."""
        super().resume_writing()
        self._writing.end()


class _Deadline:
    """Aborts the connection when a started phase does not end in time."""

    def __init__(self, connection: BoundedProtocol) -> None:
        self._connection = connection
        self._timer: TimerHandle | None = None

    def begin(self, within_s: float) -> None:
        """Start the time limit, unless it is running already."""
        if self._timer is None:
            self._timer = self._connection.loop.call_later(within_s, self._connection.transport.abort)

    def end(self) -> None:
        """Stop the time limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
