"""The connection to brokers, one gRPC channel at a time: calls with deadlines, typed errors, reconnects and sessions.

A rejected call carries the class of the error in its trailing metadata, and is raised as that class. An unreachable
broker is retried with growing pauses until the call's deadline. If no broker has ever answered, the connect timeout
applies. Every call is safe to repeat: ids are generated on this side, tokens and versions are compared on the other.
When a broker has lost the session (it was restarted), the client repeats the handshake.

There may be several addresses: the next one is used when one does not answer. A broker with only the overseer role
names the carriers (`broker_selection.py`), and one of them is used. When it disappears, the overseer is asked for the
next.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio

from tidemill.client.broker_selection import CONSUMER, PRODUCER, SelectionTerms, carriers, new_client_id
from tidemill.client.grpc_security import GrpcSecurity
from tidemill.client.rpc import (
    BACKOFF_MS_FIRST,
    BACKOFF_MS_MAX,
    CONNECT_TIMEOUT_MS,
    MESSAGE_BYTES_MAX,
    UNREACHABLE,
    Contact,
    RpcChannel,
    close_channel,
    error_name,
    no_answer_text,
    open_channel,
    retry_after_ms,
    split_addresses,
    was_cancelled,
)
from tidemill.model.errors import RequestTimedOut, TidemillError
from tidemill.model.timeline_errors import (
    BatchTooLarge,
    ProducerThrottled,
    TimelineAuthorizationFailed,
    TimelineError,
    TimelineLoginFailed,
    UnknownSession,
    Unreachable,
    by_name,
)
from tidemill.wire.grpc import timeline_pb2 as wire
from tidemill.wire.grpc import timeline_pb2_grpc as service

TIMEOUT_MS = 30_000
DOUBLINGS_MAX = 10
NS_PER_US = 1_000
MEASURE_S = 30.0
"""How often a producer compares its clock with the broker's."""
RETRY_S = 1.0
ROUND_TRIP_US_MAX = 1_000_000
ANY = "-"
"""The timeline name for a client that is not bound to a timeline."""


def typed(error: grpc.aio.AioRpcError, address: str) -> TidemillError:
    """Return the error as the broker raised it."""
    name, details = error_name(error), error.details() or ""
    if name == RequestTimedOut.__name__:  # too many logins at once
        return Unreachable(details)
    if name is not None and by_name(name) is not TimelineError:
        return by_name(name)(details)
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return TimelineLoginFailed(details)
    if error.code() is grpc.StatusCode.PERMISSION_DENIED:
        return TimelineAuthorizationFailed(details)
    if name is not None:
        return TimelineError(details)
    if error.code() in UNREACHABLE:
        return Unreachable(no_answer_text(error, address))
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return BatchTooLarge(
            f"the call has more than {MESSAGE_BYTES_MAX} bytes; send fewer messages at once: {error.details()}"
        )
    return TimelineError(f"{error.code().name}: {error.details()}")


Metadata: TypeAlias = tuple[tuple[str, str], ...]


class TimelineConnection:
    """Calls to a broker, on the event loop of the first call."""

    def __init__(
        self,
        addresses: str,
        timeline: str = "",
        *,
        timeout_ms: int = TIMEOUT_MS,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        security: GrpcSecurity | None = None,
        role: wire.Role = wire.ROLE_PRODUCER,
        follow_hints: bool = True,
    ) -> None:
        self.security = security or GrpcSecurity()
        self.follow_hints = follow_hints
        self._given = split_addresses(addresses)
        self._connect_timeout_ms = connect_timeout_ms
        self._in_use = 0
        self._preferred = ""
        """The address that a hint named; empty: the configured one is asked."""
        chooses_as = CONSUMER if role == wire.ROLE_CONSUMER else PRODUCER
        self._terms = SelectionTerms("", timeline or ANY, chooses_as, new_client_id(), follow_hints)
        self._timeline = timeline
        self.address = self._given[0]
        self.timeout_ms = timeout_ms
        self.contact = Contact(connect_timeout_ms)
        self._channel: RpcChannel | None = None
        self._stub: Any = None
        self._session = ""
        self.measured: wire.ClockMeasurement | None = None
        """How far this machine's clock is ahead of the broker's, measured by the handshake or a ping."""
        self._compared_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False
        self._greeting = asyncio.Lock()
        self._opening = asyncio.Lock()

    async def stub(self) -> Any:
        """Return the generated stub, over a channel that is opened by the first use."""
        self.check_usable()
        async with self._opening:
            if self._stub is None:
                self._channel = await self._open()
                self._stub = service.TimelineServiceStub(self._channel)
            return self._stub

    def check_usable(self) -> None:
        """Check the event loop. A channel belongs to one: on another, calls would hang or raise unclear errors."""
        if self._ended:
            raise TimelineError("the AsyncTimeline is closed; open another one")
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise TimelineError("the AsyncTimeline belongs to another event loop; open one in each event loop")

    async def _open(self) -> RpcChannel:
        """Open a channel to the broker of a hint, to the configured one, or to a carrier that this one names."""
        if self._preferred:
            self.address = self._preferred
            return open_channel(self.address, self.security)
        self.address = self._given[self._in_use]
        channel = open_channel(self.address, self.security)
        named = await carriers(channel, self._terms, self.security, timeout_s=self.timeout_ms / 1_000)
        if not named:
            return channel
        self.contact.made = True
        await close_channel(channel)
        self.address = named[0]
        return open_channel(self.address, self.security)

    async def switch_address(self, unreachable: str) -> None:
        """Switch to the next address, if there is one, unless another call has done so already."""
        if unreachable == self._preferred != "":
            self._preferred = ""
            await self.close()
            return
        named = unreachable not in self._given
        if unreachable != self.address or (len(self._given) == 1 and not named):
            return
        if not named:
            self._in_use = (self._in_use + 1) % len(self._given)
        await self.close()

    async def move_to(self, address: str) -> None:
        """Use this address from the next call on; if it cannot be reached, the configured ones."""
        self._preferred = address
        await self.close()

    async def move_back(self) -> None:
        """Use the configured addresses again."""
        self._preferred = ""
        await self.close()

    def of_consumer(self) -> "TimelineConnection":
        """A connection for one consumer, whose broker is chosen for it. It belongs to the same event loop."""
        connection = TimelineConnection(
            ",".join(self._given),
            self._timeline,
            timeout_ms=self.timeout_ms,
            connect_timeout_ms=self._connect_timeout_ms,
            security=self.security,
            role=wire.ROLE_CONSUMER,
            follow_hints=self.follow_hints,
        )
        connection.contact.made = self.contact.made
        return connection

    def pause_s(self, attempt: int) -> float:
        """Return the pause before the next attempt; it doubles after each round over all addresses, up to a limit."""
        doublings = min(attempt // len(self._given), DOUBLINGS_MAX)
        return float(min(BACKOFF_MS_FIRST * 2**doublings, BACKOFF_MS_MAX)) / 1_000

    def typed(self, error: grpc.aio.AioRpcError) -> TidemillError:
        """Return the error as the broker raised it; if no broker ever answered, with all addresses that were tried."""
        failure = typed(error, self.address if self.contact.made else ", ".join(self._given))
        failure.retry_after_ms = retry_after_ms(error)
        return failure

    async def call(self, method: str, request: Any, *, metadata: Metadata = ()) -> Any:
        """Call, and retry while the broker is unreachable, up to the deadline."""
        began = time.monotonic()
        ends = began + self.timeout_ms / 1_000
        attempt = 0
        while True:
            left_s = max(ends - time.monotonic(), 0.001)
            try:
                stub, address = await self.stub(), self.address
                reply = await getattr(stub, method)(request, timeout=left_s, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                failure = self.typed(error)
            except asyncio.CancelledError:
                if self._ended or was_cancelled():
                    raise
                failure, address = Unreachable(f"the connection to {self.address} was lost"), ""
            else:
                self.contact.made = True
                return reply
            if not isinstance(failure, Unreachable | ProducerThrottled):
                self.contact.made = True
                raise failure
            pause = max(self.pause_s(attempt), failure.retry_after_ms / 1_000)
            if time.monotonic() + pause >= ends or self.contact.is_hopeless(began):
                raise failure
            if isinstance(failure, Unreachable):
                await self.switch_address(address)
            await asyncio.sleep(pause)
            attempt += 1

    async def call_in_session(
        self, method: str, greeting: wire.HandshakeRequest, build: Callable[[str], Any], *, metadata: Metadata = ()
    ) -> Any:
        """Call with a session: do the handshake first if there is none, and again if the broker has lost it."""
        session = await self._greeted(greeting, "")
        try:
            return await self.call(method, build(session), metadata=metadata)
        except UnknownSession:
            return await self.call(method, build(await self._greeted(greeting, session)), metadata=metadata)

    async def _greeted(self, greeting: wire.HandshakeRequest, stale: str) -> str:
        async with self._greeting:
            if self._session in ("", stale):
                sent_us = time.time_ns() // NS_PER_US
                reply = await self.call("Handshake", greeting)
                self.measure(sent_us, reply, time.time_ns() // NS_PER_US)
                self._session = reply.session
            return self._session

    def measure(self, sent_us: int, reply: wire.HandshakeReply | wire.PingReply, back_us: int) -> None:
        """Compare the clocks by four timestamps. A long round trip, with retries in it, proves nothing."""
        self._compared_s = time.monotonic()
        round_trip_us = back_us - sent_us
        if not reply.received_us or not 0 <= round_trip_us <= ROUND_TRIP_US_MAX:
            return
        ahead_us = ((sent_us - reply.received_us) + (back_us - reply.answered_us)) // 2
        latency_us = max(0, round_trip_us - (reply.answered_us - reply.received_us)) // 2
        self.measured = wire.ClockMeasurement(drift_us=ahead_us, latency_us=latency_us)

    def should_measure(self) -> bool:
        """Whether the clocks should be compared again. A client without a session has not called the broker yet."""
        pause_s = MEASURE_S if self.measured is not None else RETRY_S
        return self._session != "" and time.monotonic() - self._compared_s > pause_s

    async def end(self) -> None:
        """Close permanently."""
        self._ended = True
        await self.close()

    async def close(self) -> None:
        """Close the channel; the next call opens a new one."""
        channel, self._channel, self._stub, self._session = self._channel, None, None, ""
        if channel is not None:
            await close_channel(channel)
