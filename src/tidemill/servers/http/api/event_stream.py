"""Server-sent events: documents that a client gets as they come, over one response.

A handler returns `context.streams.open(call, documents)`, where `documents` is an async generator. The next document is
taken when the client has read the last one, so nothing is kept for a client that reads slowly; one that does not read
is cut by `BoundedProtocol`. A stream ends after a time, when the login of its client ends, when the client loses a
right that the route requires, and when the server closes. No document is sent after that.
The client then connects again, and its login and its rights are checked again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidemill.model.errors import TidemillError
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.logins import HttpClient
from tidemill.wire.http.document import Document, Problem

STREAMS_MAX = 200
"""Open streams of all clients."""
CLIENT_STREAMS_MAX = 20
"""Open streams of one client: a user at one address."""
STREAM_S = 300.0
"""A stream ends after this time, and the client opens the next one."""
HEARTBEAT_S = 10.0
"""A stream without documents sends a comment this often. The login is checked as often."""
RETRY_MS = 2_000
"""How long a browser waits before it opens the next stream."""
BEGIN = f"retry: {RETRY_MS}\n\n".encode()
HEARTBEAT = b": \n\n"

Documents = AsyncGenerator[Document, None]


class EventStreams:
    """The open streams of one HTTP server."""

    def __init__(self, is_over: Callable[[HttpClient], bool]) -> None:
        self._is_over = is_over
        self._open: Counter[Any] = Counter()
        self._closing = asyncio.Event()

    def open(self, call: ApiCall[Any, Any], documents: Documents) -> Response:
        """The response that sends these documents; ApiProblem while there are too many streams."""
        key = (call.rights.principal, call.rights.host)
        if self._open[key] >= CLIENT_STREAMS_MAX or self._open.total() >= STREAMS_MAX:
            raise ApiProblem(429, f"{self._open[key]} live views of this client are open; close one, then try again")
        return _EventStream(self, call, documents)

    def has_ended(self, call: ApiCall[Any, Any]) -> bool:
        """Whether the login of a client has ended since its request, or a right that the route requires."""
        return self._is_over(call.client) or not call.is_allowed

    def close(self) -> None:
        """End all streams."""
        self._closing.set()

    async def serve(self, call: ApiCall[Any, Any], documents: Documents, receive: Receive, send: Send) -> None:
        """Send documents until the stream ends."""
        key = (call.rights.principal, call.rights.host)
        self._open[key] += 1
        ends = [asyncio.ensure_future(self._closing.wait()), asyncio.ensure_future(_disconnected(receive))]
        upcoming = asyncio.ensure_future(anext(documents))
        try:
            until = asyncio.get_running_loop().time() + STREAM_S
            await _write(send, BEGIN)
            while asyncio.get_running_loop().time() < until and not self.has_ended(call):
                await asyncio.wait([upcoming, *ends], timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if any(each.done() for each in ends) or self.has_ended(call):
                    break
                if not upcoming.done():
                    await _write(send, HEARTBEAT)
                    continue
                await _write(send, b"data: " + msgspec.json.encode(upcoming.result()) + b"\n\n")
                upcoming = asyncio.ensure_future(anext(documents))
        except StopAsyncIteration:
            pass
        except (ApiProblem, TidemillError) as error:
            await _write(send, b"event: problem\ndata: " + msgspec.json.encode(Problem(error=str(error))) + b"\n\n")
        finally:
            self._left(key)
            for each in (upcoming, *ends):
                each.cancel()
            await asyncio.gather(upcoming, *ends, return_exceptions=True)
            await documents.aclose()

    def _left(self, key: Any) -> None:
        self._open[key] -= 1
        if not self._open[key]:
            del self._open[key]


class _EventStream(Response):
    media_type = "text/event-stream"

    def __init__(self, streams: EventStreams, call: ApiCall[Any, Any], documents: Documents) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._streams = streams
        self._call = call
        self._documents = documents

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head, then documents."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            await self._streams.serve(self._call, self._documents, receive, send)
        with suppress(OSError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _write(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
