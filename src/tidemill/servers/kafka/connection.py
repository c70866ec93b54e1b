"""The connection of one client: requests start in order of arrival, and responses are sent in that order.

A request starts when all requests before it have responses. Pipelined requests (Produce) are the exception: they may
start while only pipelined ones are in progress. So a producer can have several batches in flight, admitted in order
of arrival, and every other request sees the effect of those before it. A response that is ready early waits.

Memory is bounded. Reading stops while too many requests or bytes wait, here or on all connections together, and while
the client does not read its responses. Nothing that a client sends may end the process. Bytes that are not a request
close the connection. An unexpected error of a handler is logged and returned as UNKNOWN_SERVER_ERROR; where the
response has no field for an error, the connection closes.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Coroutine
from contextlib import AsyncExitStack
from struct import Struct
from time import perf_counter
from typing import Any, cast

import structlog

from tidemill.model.errors import ProtocolViolation
from tidemill.model.listeners import ListenerSpec
from tidemill.security.client_certificate import certificate_principal
from tidemill.servers.kafka.api import Api, Buffers, Call, ConnectionIdentity
from tidemill.servers.kafka.api_versions import API_VERSIONS, unsupported_version
from tidemill.servers.kafka.client_channel import ClientChannel
from tidemill.servers.kafka.connection_host import ConnectionHost
from tidemill.servers.kafka.connection_throttle import ConnectionThrottle
from tidemill.servers.kafka.eviction import Resting, Upload
from tidemill.servers.kafka.handled_call import answer_of
from tidemill.servers.kafka.loop_guard import LOOP_ITEMS_MAX
from tidemill.servers.kafka.measured_steps import MeasuredSteps
from tidemill.servers.kafka.response_slot import ResponseSlot
from tidemill.servers.kafka.throttle_time import PRODUCE, throttle_ms, with_throttle_time
from tidemill.servers.kafka.upload_clock import UploadClock
from tidemill.wire.kafka.frames import FrameReader
from tidemill.wire.kafka.loading import is_loaded, load
from tidemill.wire.kafka.reader import TooManyItems
from tidemill.wire.kafka.requests import Header, is_flexible, peek, read_body, read_header

LOGIN_APIS = frozenset({API_VERSIONS, 17, 36})
"""ApiVersions, SaslHandshake and SaslAuthenticate are served before a client has authenticated."""
LOGIN_TIMEOUT_S = 30.0
"""A client that has not authenticated after this time is disconnected."""
LOGIN_END_S = 0.1
"""The time between the answer to a failed login and the end of the connection."""
IN_FLIGHT_MAX = 64
WAITING_REQUESTS_MAX = 128
PENDING_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of requests that wait or are in progress; reading stops at this limit."""
CROWDED_BYTES_MAX = 64 * 1024
"""The same limit while all connections together hold too much: small requests are still served."""
WRITE_BUFFER_HIGH_BYTES = 1024 * 1024
WRITE_BUFFER_LOW_BYTES = 256 * 1024
JOINED_WRITE_BYTES_MAX = 64 * 1024
"""Responses up to this size are joined before the write; larger ones are written as separate buffers."""
_PREFIX = Struct(">ii")

log = structlog.get_logger("tidemill.kafka")


class ClientConnection(asyncio.BufferedProtocol):
    """The state of one connection."""

    def __init__(
        self, server: "ConnectionHost[ClientConnection]", listener: ListenerSpec | None = None, address: str = ""
    ) -> None:
        self._server = server
        self._throttle = server.broker.security.throttle
        self._identity = ConnectionIdentity(listener)
        self._muting = ConnectionThrottle(self._throttle, self._identity)
        self._frames = FrameReader(server.scratch, self._frame_bytes_max())
        self._waiting: deque[bytearray] = deque()
        self._in_time = 0
        """How many of the requests that wait had arrived before the login expired."""
        self._pending_bytes = 0
        self._held_bytes = 0
        self._owed_bytes = 0
        self._slots: deque[ResponseSlot] = deque()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._write_paused = False
        self._retired = False
        self._ending = False
        self._uploads = UploadClock()
        self._served = False
        self._login_deadline = self._loop.time() + LOGIN_TIMEOUT_S
        self.last_active = self._loop.time()
        self.peer = ""
        self.address = address
        """The client's address in the form that limits are counted by."""
        self.channel = ClientChannel(server.broker.metrics, server.closings)

    def under_way(self) -> list[asyncio.Task[None]]:
        """The requests that a server that stops should wait for."""
        return [slot.task for slot in self._slots if slot.task is not None and not slot.waits]

    def in_flight(self) -> int:
        """How many requests are being served. It is counted when it is asked for, not with each request."""
        return sum(not slot.done for slot in self._slots)

    # --- called by the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection."""
        self._transport = self.channel.transport = transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if isinstance(name, tuple) and name else ""
        is_identified = self._identify(transport)
        self._server.opened(self)
        if not is_identified:
            transport.abort()
            return
        transport.set_write_buffer_limits(WRITE_BUFFER_HIGH_BYTES, WRITE_BUFFER_LOW_BYTES)

    def _identify(self, transport: asyncio.Transport) -> bool:
        """Take the principal of a client certificate; False if its name cannot be read."""
        listener = self._identity.listener
        if listener is None or not listener.uses_tls or listener.requires_login:
            return True
        found = certificate_principal(transport, self._server.broker.settings.of_listener(listener.name))
        if found is None:
            return False
        self._identity.principal = found
        return True

    def _frame_bytes_max(self) -> int:
        """The largest request: small until a client has authenticated."""
        settings = self._server.broker.settings
        if self._identity.is_authenticated:
            return settings.socket_request_max_bytes
        return settings.security.sasl_server_max_receive_size

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected: cancel long polls; all other requests run to their end without a response."""
        if exc is None and not self._ending:
            self._start_rest()
        self._ending = True
        self._muting.end()
        self._waiting.clear()
        kept_bytes = 0
        for slot in self._slots:
            if slot.task is not None and slot.api.abandoned:
                slot.cancel()
            elif slot.task is not None:
                self._server.adopt(slot.task, slot.frame_bytes, waits=slot.waits)
                kept_bytes += slot.frame_bytes
        self._slots.clear()
        on_close, self._identity.on_close = self._identity.on_close, {}
        for ended in on_close.values():
            ended()
        self._frames.drop()
        self._server.hold(kept_bytes - self._held_bytes)
        self._held_bytes = 0
        self._owe(0)
        self._server.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        _ = sizehint
        self._frames.eager_bytes = self._server.eager_bytes
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Start the requests that have arrived completely."""
        self.last_active = self._loop.time()
        self.channel.traffic.bytes_in += nbytes
        if not self._frames.partial_bytes:
            self._uploads.begin(self.last_active)
        try:
            frames = self._frames.received(nbytes)
        except ProtocolViolation as error:
            self._end(error)
            return
        if self._ending:
            return
        if frames:
            self._served = True
            self._uploads.completed(self.last_active)
        else:
            self._uploads.arrived(self.last_active, self._frames.partial_bytes, self._frames.partial_size)
        for frame in frames:
            self._pending_bytes += len(frame)
        self._waiting += frames
        if not self._has_expired():
            self._in_time = len(self._waiting)
        self._pump()
        self._account()
        self._regulate_reading()

    def eof_received(self) -> bool:
        """Close the transport: Kafka clients close the whole socket, never one direction."""
        return False

    def pause_writing(self) -> None:
        """Stop reading: the client does not read its responses."""
        self._write_paused = True
        self._regulate_reading()

    def resume_writing(self) -> None:
        """Start reading again: the client reads its responses."""
        self._write_paused = False
        self._owe(0)
        self._pump()
        self._regulate_reading()

    # --- called by the server ---

    def too_slow(self, now: float, idle_s: float) -> bool:
        """Whether the client was idle for too long, or sends a request too slowly."""
        if self._uploads.is_over(now):
            return True
        if now > self._login_deadline and not self._identity.is_authenticated:
            return True
        return not self._slots and not self._muting.is_muted and now - self.last_active > idle_s

    def upload(self, now: float) -> "Upload[ClientConnection] | None":
        """The request of which a part has arrived, if there is one."""
        held = self._frames.partial_bytes
        if self._ending or not held:
            return None
        return Upload(self, held, self._frames.received_bytes, self._uploads.seconds(now))

    def resting(self, now: float) -> "Resting[ClientConnection] | None":
        """How long the connection has been idle, if no request is in progress."""
        if self._ending or self._slots or self._waiting:
            return None
        return Resting(self, now - self.last_active, self._served)

    @property
    def muted_file(self) -> int | None:
        """The file descriptor of a throttled connection: it does not read, so it does not notice the client's end."""
        if not self._muting.is_muted or self._transport is None or self._transport.is_closing():
            return None
        found: int = self._transport.get_extra_info("socket").fileno()
        return found

    @property
    def held_throttled_bytes(self) -> int:
        """The memory of the requests of a throttled client."""
        return 0 if not self._muting.is_muted or self._ending else self._held_bytes

    def leave(self) -> None:
        """Close a throttled connection whose client has left; Produce requests that have arrived still count."""
        if self._transport is not None:
            self._transport.abort()

    def unmute(self) -> None:
        """Start reading again: the time of the throttling is over, or the quotas have changed."""
        if not self._muting.is_muted:
            return
        self._muting.end()
        self._pump()
        self._account()
        self._regulate_reading()

    @property
    def has_begun(self) -> bool:
        """Whether the connection was established, with its TLS handshake."""
        return self._transport is not None

    @property
    def is_authenticated(self) -> bool:
        """Whether requests may be served."""
        return self._identity.is_authenticated

    @property
    def listener_name(self) -> str:
        """The listener that the client has connected to."""
        listener = self._identity.listener
        return "" if listener is None else listener.name

    def drop(self) -> None:
        """Close a connection that has not authenticated, for another one."""
        self.evict()

    def evict(self) -> None:
        """Close at once and free the memory of a partial request."""
        self._frames.drop()
        self._account()
        self.abort()

    def unstall(self) -> None:
        """Start reading again: all connections together are below the limit."""
        self._regulate_reading()

    def retire(self) -> None:
        """Start no more requests; those in progress still get responses."""
        self._retired = True
        self._waiting.clear()
        self._regulate_reading()

    def close(self) -> None:
        """Close the connection after the written responses are sent."""
        self._ending = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._ending = True
        if self._transport is not None:
            self._transport.abort()

    # --- requests and responses ---

    def _pump(self) -> None:
        """Start the requests that may start."""
        while self._waiting and not self._ending and not self._write_paused and len(self._slots) < IN_FLIGHT_MAX:
            if self._muting.is_muted:
                return
            frame = self._waiting[0]
            try:
                key, version = peek(frame)
                if key == API_VERSIONS and version > self._server.apis.by_key[key].versions[1]:
                    version = 0
                api = self._server.apis.find(key, version)
                if self._slots and not (api.pipelined and self._slots[-1].pipelined):
                    return
                self._check_login(api)
                if key == PRODUCE and not self._muting.is_checked and self._mute(self._muting.debt_s(version, frame)):
                    return
                self._start(api, key, version, self._next_frame())
            except ProtocolViolation as error:
                self._end(error)

    def _next_frame(self) -> bytearray:
        self._in_time = max(0, self._in_time - 1)
        return self._waiting.popleft()

    def _start_rest(self) -> None:
        """Start the Produce requests that have arrived: a producer with acks=0 disconnects after it has sent them."""
        while self._waiting:
            frame = self._waiting[0]
            try:
                key, version = peek(frame)
                api = self._server.apis.find(key, version)
                if not (api.pipelined and (not self._slots or self._slots[-1].pipelined)):
                    return
                self._check_login(api)
                self._start(api, key, version, self._next_frame())
            except ProtocolViolation:
                return

    def _check_login(self, api: Api) -> None:
        """Refuse other requests until the client has authenticated, and again when its login has expired."""
        identity = self._identity
        if identity.is_open or api.key in LOGIN_APIS:
            return
        if not identity.is_authenticated:
            raise ProtocolViolation(f"{api.name} was sent before the login; the listener requires SASL authentication")
        if not self._in_time and self._has_expired():
            raise ProtocolViolation(f"{api.name} was sent after the login had expired; authenticate again")

    def _has_expired(self) -> bool:
        """Whether the client has to authenticate again."""
        expires_ms = self._identity.expires_ms
        return expires_ms is not None and self._server.broker.environment.clock_ms() >= expires_ms

    def _start(self, api: Api, key: int, version: int, frame: bytearray) -> None:
        slot = ResponseSlot(api, len(frame), perf_counter())
        self.channel.apis |= 1 << key
        if key == API_VERSIONS and peek(frame)[1] != version:
            header = read_header(frame, flexible=False)
            self._slots.append(slot)
            self._answer(slot, header, [unsupported_version(api)], flexible=False)
            return
        if not is_loaded(key, version):
            self._start_alone(slot, self._load_and_serve(slot, key, version, frame))
            return
        header, call = self._called(key, version, frame)
        try:
            request = _read(api, header, frame, LOOP_ITEMS_MAX)
        except TooManyItems:
            self._start_alone(slot, self._serve_large(slot, call, header, frame))
            return
        self._slots.append(slot)
        # The handler is called here and not in its task, so that appends start in order of arrival.
        answering: Awaitable[Any] = api.handle(call, request)
        slot.handling = answering
        if self._throttle.measures_time:
            call.spent_s += perf_counter() - slot.started
            answering = MeasuredSteps(call, answering)
        slot.task = self._loop.create_task(self._serve(slot, call, header, answering))

    def _start_alone(self, slot: ResponseSlot, serving: Coroutine[Any, Any, None]) -> None:
        """Start a request whose handler is called later; no request behind it starts before it, to keep the order."""
        slot.pipelined = False
        self._slots.append(slot)
        slot.task = self._loop.create_task(serving)

    def _called(self, key: int, version: int, frame: bytearray) -> tuple[Header, Call]:
        header = read_header(frame, flexible=is_flexible(key, version))
        server = self._server
        call = Call(
            server.broker,
            key,
            version,
            header.client_id,
            self._identity.host or self.peer,
            server.apis,
            identity=self._identity,
            guard=server.guard,
            memory_short=server.memory_short,
        )
        if key == PRODUCE and self._throttle.is_enabled:
            self._mute(self._muting.count_produce(call, len(frame)))
        return header, call

    async def _load_and_serve(self, slot: ResponseSlot, key: int, version: int, frame: bytearray) -> None:
        """Serve the first request of its version: its message classes are imported in a thread."""
        await self._server.guard.in_loader(load, key, version)
        try:
            header, call = self._called(key, version, frame)
            request = _read(slot.api, header, frame, LOOP_ITEMS_MAX)
        except TooManyItems:
            await self._serve_large(slot, call, header, frame)
        except ProtocolViolation as error:
            self._end(error)
        else:
            await self._serve(slot, call, header, self._muting.measured(call, slot.api.handle(call, request)))

    async def _serve_large(self, slot: ResponseSlot, call: Call, header: Header, frame: bytearray) -> None:
        guard = self._server.guard
        async with AsyncExitStack() as permit:
            await permit.enter_async_context(guard.large_requests)
            if self._ending:
                return
            try:
                request = await call.in_worker(_read, slot.api, header, frame)
            except ProtocolViolation as error:
                self._end(error)
                return
            if slot.waits:
                await permit.aclose()  # it may wait for other clients, whose requests may need the permit
            await self._serve(slot, call, header, self._muting.measured(call, slot.api.handle(call, request)))

    async def _serve(self, slot: ResponseSlot, call: Call, header: Header, answering: Awaitable[Any]) -> None:
        flexible = is_flexible(header.key, header.version)
        try:
            answer = await answer_of(slot.api, call, answering)
            if self._throttle.is_enabled:
                self._muting.count_answer(slot.api, call)
            if call.wait_s:
                answer = with_throttle_time(answer, call.api_key, call.version, throttle_ms(call.wait_s))
                self._mute(call.wait_s)
            buffers = answer if answer is None or isinstance(answer, list) else await self._muting.encoded(call, answer)
        except ProtocolViolation as error:
            self._end(error)
            return
        except Exception as error:
            log.exception("response_failed", api=slot.api.name, version=header.version, client_id=header.client_id)
            self._end(error)
            return
        if slot.api.key in LOGIN_APIS:
            if self._identity.is_authenticated:
                self._server.authenticated(self)
                self.channel.belongs_to(self._identity)
            self._frames.frame_bytes_max = self._frame_bytes_max()
        has_failed = slot.api.key in LOGIN_APIS and self._identity.has_failed
        if has_failed:
            self._waiting.clear()  # nothing that was sent behind a failed login is served
        self._answer(slot, header, buffers, flexible=flexible and header.key != API_VERSIONS)
        if has_failed:
            self._end_login()

    def _mute(self, wait_s: float) -> bool:
        """Stop reading, and start no request, until the time is over; False if there is nothing to wait for."""
        if not wait_s or self._ending:
            return False
        self._muting.mute(wait_s, self.unmute)
        self._regulate_reading()
        return True

    def _answer(self, slot: ResponseSlot, header: Header, buffers: Buffers | None, *, flexible: bool) -> None:
        if buffers is not None:
            size = sum(map(len, buffers)) + 4 + flexible
            prefix = _PREFIX.pack(size, header.correlation)
            buffers.insert(0, prefix + b"\0" if flexible else prefix)
            self.channel.traffic.bytes_out += size + 4
        slot.buffers = buffers
        slot.done = True
        self._server.traffic[slot.api.name].answered(perf_counter() - slot.started)
        if self._slots and self._slots[0] is slot:
            self._write_ready()
            if not self._ending:
                self._pump()
                self._account()
                self._regulate_reading()

    def _write_ready(self) -> None:
        """Send the responses at the front of the queue that are ready."""
        ready: Buffers = []
        while self._slots and self._slots[0].done:
            slot = self._slots.popleft()
            self._pending_bytes -= slot.frame_bytes
            if slot.buffers is not None:
                ready += slot.buffers
        self.last_active = self._loop.time()
        if not ready or self._transport is None or self._transport.is_closing():
            return
        if len(ready) == 1:
            self._transport.write(ready[0])
        elif sum(map(len, ready)) <= JOINED_WRITE_BYTES_MAX:
            self._transport.write(b"".join(ready))
        else:
            self._transport.writelines(ready)
        if self._write_paused:
            self._owe(self._transport.get_write_buffer_size())

    def _owe(self, count: int) -> None:
        """Report the bytes of responses that the client has not read; only slow clients count."""
        if count != self._owed_bytes:
            self._server.owe(count - self._owed_bytes)
            self._owed_bytes = count

    def _end(self, error: BaseException) -> None:
        """Close because of an invalid request; responses that are ready are still sent."""
        if self._ending:
            return
        self.channel.fail(self.peer, str(error))
        self._waiting.clear()
        self._write_ready()
        self.close()

    def _end_login(self) -> None:
        """Close a little after the answer: some clients drop an answer that arrives together with the end."""
        if self._ending:
            return
        self.channel.fail(self.peer, "the login failed")
        self.retire()
        self._ending = True
        self._loop.call_later(LOGIN_END_S, self.close)

    def _account(self) -> None:
        """Report the bytes of requests that this connection holds."""
        held = self._pending_bytes + self._frames.partial_bytes
        change, self._held_bytes = held - self._held_bytes, held
        if change:
            self._server.hold(change)

    def _regulate_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        pending_max = PENDING_BYTES_MAX if self._identity.is_authenticated else CROWDED_BYTES_MAX
        many = len(self._waiting) >= WAITING_REQUESTS_MAX or self._pending_bytes >= pending_max
        crowded = self._server.is_crowded and self._held_bytes > CROWDED_BYTES_MAX
        if crowded:
            self._server.stall(self)
        full = many or crowded or self._write_paused or self._retired or self._muting.is_muted
        if full and not self._uploads.is_paused:
            self._uploads.pause(self._loop.time())
            self._transport.pause_reading()
        elif not full and self._uploads.is_paused:
            self._uploads.resume(self._loop.time())
            self._transport.resume_reading()


def _read(api: Api, header: Header, frame: bytearray, *items_max: int) -> Any:
    """The request; without `items_max` the limit of its API applies."""
    if api.read is not None:
        return api.read(frame, header.body, header.version, *items_max)
    return read_body(header, frame, *items_max)
