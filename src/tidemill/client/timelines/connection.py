"""One gRPC channel to a broker at a time: calls with deadlines, typed errors, reconnects and sessions.

A refused call carries the class of the error in its trailing metadata; it is raised here as that class. A broker that
cannot be reached is tried again with growing pauses until the call's deadline, or the connect timeout where nobody has
ever answered. Every call is safe to repeat: ids are drawn on this side, tokens and versions are compared on the other.
A broker that has forgotten the session (it was restarted) is greeted again.

Several addresses may be given: the next one takes the place of one that does not answer. Where a broker only oversees,
it names the carriers (`choosing.py`), and one of them is used; when that one is gone, the next is asked for.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from tidemill.client.broker_selection import carriers
from tidemill.client.rpc import (
    BACKOFF_MS_FIRST,
    BACKOFF_MS_MAX,
    CONNECT_TIMEOUT_MS,
    MESSAGE_BYTES_MAX,
    UNREACHABLE,
    Contact,
    close_channel,
    error_name,
    nobody_answers,
    open_channel,
    split_addresses,
)
from tidemill.model.errors import TidemillError
from tidemill.model.timeline_errors import BatchTooLarge, TimelineError, UnknownSession, Unreachable, by_name
from tidemill.wire.grpc import timeline_pb2 as wire
from tidemill.wire.grpc import timeline_pb2_grpc as service

TIMEOUT_MS = 30_000
DOUBLINGS_MAX = 10
ANY = "-"
"""Asked for when a client is not bound to a timeline."""


def typed(error: grpc.aio.AioRpcError, address: str) -> TidemillError:
    """The error as the broker raised it."""
    name = error_name(error)
    if name is not None:
        return by_name(name)(error.details() or "")
    if error.code() in UNREACHABLE:
        return Unreachable(nobody_answers(error, address))
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return BatchTooLarge(f"more than {MESSAGE_BYTES_MAX} bytes in one call: {error.details()}")
    return TimelineError(f"{error.code().name}: {error.details()}")


class TimelineConnection:
    """Calls to a broker, on the event loop that makes the first of them."""

    def __init__(
        self,
        addresses: str,
        timeline: str = "",
        *,
        timeout_ms: int = TIMEOUT_MS,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
    ) -> None:
        self._given = split_addresses(addresses)
        self._in_use = 0
        self._timeline = timeline
        self.address = self._given[0]
        self.timeout_ms = timeout_ms
        self.contact = Contact(connect_timeout_ms)
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None
        self._session = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False
        self._greeting = asyncio.Lock()
        self._opening = asyncio.Lock()

    async def stub(self) -> Any:
        """The generated stub, over a channel that is opened by the first use."""
        self.check_usable()
        async with self._opening:
            if self._stub is None:
                self._channel = await self._open()
                self._stub = service.TimelineServiceStub(self._channel)
            return self._stub

    def check_usable(self) -> None:
        """A channel belongs to one event loop: another would wait for ever, or meet errors that say nothing."""
        if self._ended:
            raise TimelineError("this AsyncTimeline is closed; open another one")
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise TimelineError("this AsyncTimeline is used by another event loop; open one in each")

    async def _open(self) -> grpc.aio.Channel:
        """A channel to the broker that was given, or to a carrier that it names."""
        self.address = self._given[self._in_use]
        channel = open_channel(self.address)
        named = await carriers(channel, timeline=self._timeline or ANY, timeout_s=self.timeout_ms / 1_000)
        if not named:
            return channel
        self.contact.made = True
        await close_channel(channel)
        self.address = named[0]
        return open_channel(self.address)

    async def elsewhere(self, unreachable: str) -> None:
        """Nobody answers there: go on with the next address, if there is another one, unless somebody has already."""
        named = unreachable not in self._given
        if unreachable != self.address or (len(self._given) == 1 and not named):
            return
        if not named:
            self._in_use = (self._in_use + 1) % len(self._given)
        await self.close()

    def pause_s(self, attempt: int) -> float:
        """The pause before the next attempt: doubling when every address has had its turn, up to a limit."""
        doublings = min(attempt // len(self._given), DOUBLINGS_MAX)
        return float(min(BACKOFF_MS_FIRST * 2**doublings, BACKOFF_MS_MAX)) / 1_000

    def typed(self, error: grpc.aio.AioRpcError) -> TidemillError:
        """The error as the broker raised it; where nobody ever answered, with all addresses that were tried."""
        return typed(error, self.address if self.contact.made else ", ".join(self._given))

    async def call(self, method: str, request: Any) -> Any:
        """Call, and try again while the broker is away, up to the deadline."""
        began = time.monotonic()
        ends = began + self.timeout_ms / 1_000
        attempt = 0
        while True:
            left_s = max(ends - time.monotonic(), 0.001)
            try:
                stub, address = await self.stub(), self.address
                reply = await getattr(stub, method)(request, timeout=left_s)
            except grpc.aio.AioRpcError as error:
                failure = self.typed(error)
            else:
                self.contact.made = True
                return reply
            if not isinstance(failure, Unreachable):
                self.contact.made = True
                raise failure
            pause = self.pause_s(attempt)
            if time.monotonic() + pause >= ends or self.contact.is_hopeless(began):
                raise failure
            await self.elsewhere(address)
            await asyncio.sleep(pause)
            attempt += 1

    async def call_in_session(self, method: str, greeting: wire.HandshakeRequest, build: Callable[[str], Any]) -> Any:
        """Call with a session: shake hands first where there is none, and again where it was forgotten."""
        session = await self._greeted(greeting, "")
        try:
            return await self.call(method, build(session))
        except UnknownSession:
            return await self.call(method, build(await self._greeted(greeting, session)))

    async def _greeted(self, greeting: wire.HandshakeRequest, stale: str) -> str:
        async with self._greeting:
            if self._session in ("", stale):
                self._session = (await self.call("Handshake", greeting)).session
            return self._session

    async def end(self) -> None:
        """Close for good."""
        self._ended = True
        await self.close()

    async def close(self) -> None:
        """Close the channel; the next call opens a new one."""
        channel, self._channel, self._stub, self._session = self._channel, None, None, ""
        if channel is not None:
            await close_channel(channel)
