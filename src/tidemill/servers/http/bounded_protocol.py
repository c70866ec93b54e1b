"""HTTP as uvicorn speaks it, with an end to everything that a client can let grow or wait.

uvicorn itself bounds neither the bytes of a head or a trailer nor the time in which a request comes and its answer is
read: a few clients that send for ever, or nothing, would take the memory and the sockets of the whole broker.
"""

from asyncio import Transport
from asyncio.events import TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_BYTES_MAX = 1024 * 1024
"""Of one request: its head, its body and what follows it."""
RECEIVE_S = 30.0
"""From the first byte of a request, or from the connection, to the end of the request."""
STALL_S = 60.0
"""How long an answer waits for a client that does not read it."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, connections_max: int, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._connections_max = connections_max
        self._received_bytes = 0
        self._receiving = _Deadline(self)
        self._writing = _Deadline(self)

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """A client is there; one too many is sent away."""
        super().connection_made(transport)
        if len(self.connections) > self._connections_max:
            transport.abort()
        else:
            self._receiving.begin(RECEIVE_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._receiving.end()
        self._writing.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self._received_bytes += len(data)
        self._receiving.begin(RECEIVE_S)
        super().data_received(data)
        if self._received_bytes > REQUEST_BYTES_MAX:
            self.transport.abort()

    def on_message_complete(self) -> None:
        """A request is here as a whole."""
        self._received_bytes = 0
        self._receiving.end()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """The client does not read its answer."""
        super().pause_writing()
        self._writing.begin(STALL_S)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._writing.end()


class _Deadline:
    """The connection is cut when what has begun does not end in time."""

    def __init__(self, connection: BoundedProtocol) -> None:
        self._connection = connection
        self._timer: TimerHandle | None = None

    def begin(self, within_s: float) -> None:
        """From now on, unless it has begun already."""
        if self._timer is None:
            self._timer = self._connection.loop.call_later(within_s, self._connection.transport.abort)

    def end(self) -> None:
        """It was in time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
