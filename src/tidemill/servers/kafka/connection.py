"""One client's connection: requests start in the order they came, answers leave in that order.

A request starts when nothing before it is unanswered, with one exception: a pipelined one (Produce) may start while
only pipelined ones are unanswered. So producers keep several batches on their way, each admitted in order of arrival,
and every other request sees the effect of those before it. An answer that is ready early waits for its turn.

Everything is bounded. Reading stops while too many requests or bytes wait, here or at all connections together, or
while the client does not read its answers; it goes on when that is over. Nothing that a client sends can end the
process: bytes that are no request end the connection, and a handler that fails in a way nobody foresaw answers
UNKNOWN_SERVER_ERROR where the API has a place for it, is logged, and otherwise ends the connection.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Coroutine
from contextlib import AsyncExitStack
from struct import Struct
from time import perf_counter
from typing import Any, Protocol, cast

import structlog

from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import ProtocolViolation, TidemillError
from tidemill.servers.kafka.api import Api, Buffers, Call, ConnectionIdentity
from tidemill.servers.kafka.api_versions import API_VERSIONS, unsupported_version
from tidemill.servers.kafka.eviction import Resting, Upload
from tidemill.servers.kafka.loop_guard import LOOP_ITEMS_MAX, LoopGuard
from tidemill.servers.kafka.router import Router
from tidemill.wire.kafka.error_codes import refusals
from tidemill.wire.kafka.frames import FrameReader
from tidemill.wire.kafka.loading import is_loaded, load
from tidemill.wire.kafka.reader import TooManyItems
from tidemill.wire.kafka.requests import Header, is_flexible, peek, read_body, read_header

IN_FLIGHT_MAX = 64
WAITING_REQUESTS_MAX = 128
PENDING_BYTES_MAX = 32 * 1024 * 1024
"""Requests that wait or are under way; reading stops above it."""
CROWDED_BYTES_MAX = 64 * 1024
"""The same while all connections together hold too many: small requests of others are still served."""
WRITE_BUFFER_HIGH_BYTES = 1024 * 1024
WRITE_BUFFER_LOW_BYTES = 256 * 1024
JOINED_WRITE_BYTES_MAX = 64 * 1024
"""Answers up to this size are written as one piece; larger ones leave as the buffers they are."""
UPLOAD_GRACE_S = 120.0
UPLOAD_BYTES_PER_S_MIN = 64 * 1024
"""A frame must arrive within the grace and this pace; slower clients are closed."""

_PREFIX = Struct(">ii")

log = structlog.get_logger("tidemill.kafka")


class ConnectionHost(Protocol):
    """What a connection needs of the door it belongs to."""

    broker: BrokerNode
    router: Router
    guard: LoopGuard
    scratch: memoryview
    memory_short: bool
    is_crowded: bool
    eager_bytes: int

    def opened(self, connection: "ClientConnection") -> bool:
        """Take the connection in; False when there are too many."""

    def closed(self, connection: "ClientConnection") -> None:
        """The connection is gone."""

    def adopt(self, task: asyncio.Task[None], held_bytes: int, *, waits: bool) -> None:
        """Keep the work of a client that is gone, and the memory of its request, until it is done.

        `waits` when a closing door need not wait for it.
        """

    def owe(self, count: int) -> None:
        """Count bytes of answers in or out that clients are slow to read."""

    def hold(self, count: int) -> None:
        """Count bytes of requests in or out; closes the slowest uploads when all connections hold too many."""

    def stall(self, connection: "ClientConnection") -> None:
        """Call `unstall` when all connections together hold less again."""


class ResponseSlot:
    """The place of one answer in the row."""

    __slots__ = ("api", "buffers", "done", "frame_bytes", "pipelined", "started", "task")

    def __init__(self, api: Api, frame_bytes: int, started: float) -> None:
        self.api = api
        self.pipelined = api.pipelined
        self.frame_bytes = frame_bytes
        self.started = started
        self.buffers: Buffers | None = None
        self.done = False
        self.task: asyncio.Task[None] | None = None

    @property
    def waits(self) -> bool:
        """Whether the request may wait for something that only other clients do."""
        return self.api.abandoned or self.api.parked


class ClientConnection(asyncio.BufferedProtocol):
    """The state of one connection."""

    def __init__(self, door: ConnectionHost) -> None:
        self._door = door
        self._frames = FrameReader(door.scratch, door.broker.settings.socket_request_max_bytes)
        self._waiting: deque[bytearray] = deque()
        self._pending_bytes = 0
        self._held_bytes = 0
        self._owed_bytes = 0
        self._slots: deque[ResponseSlot] = deque()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._write_paused = False
        self._read_paused = False
        self._retired = False
        self._ending = False
        self._upload_deadline: float | None = None
        self._upload_began = 0.0
        self._paused_at = 0.0
        self._served = False
        self.last_active = self._loop.time()
        self.peer = ""
        self._identity = ConnectionIdentity()

    def under_way(self) -> list[asyncio.Task[None]]:
        """The requests that a closing door should wait for."""
        return [slot.task for slot in self._slots if slot.task is not None and not slot.waits]

    # --- what the transport calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if isinstance(name, tuple) and name else ""
        if not self._door.opened(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(WRITE_BUFFER_HIGH_BYTES, WRITE_BUFFER_LOW_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: long polls end, everything else runs to its end without an answer."""
        if exc is None and not self._ending:
            self._start_rest()
        self._ending = True
        self._waiting.clear()
        kept_bytes = 0
        for slot in self._slots:
            if slot.task is not None and slot.api.abandoned:
                slot.task.cancel()
            elif slot.task is not None:
                self._door.adopt(slot.task, slot.frame_bytes, waits=slot.waits)
                kept_bytes += slot.frame_bytes
        self._slots.clear()
        self._frames.drop()
        self._door.hold(kept_bytes - self._held_bytes)
        self._held_bytes = 0
        self._owe(0)
        self._door.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        _ = sizehint
        self._frames.eager_bytes = self._door.eager_bytes
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        self.last_active = self._loop.time()
        if not self._frames.partial_bytes:
            self._upload_began = self.last_active
        try:
            frames = self._frames.received(nbytes)
        except ProtocolViolation as error:
            self._end(error)
            return
        if self._ending:
            return
        self._upload_deadline = None if frames else self._deadline()
        if frames:
            self._served = True
            self._upload_began = self.last_active
        for frame in frames:
            self._pending_bytes += len(frame)
        self._waiting += frames
        self._pump()
        self._account()
        self._regulate_reading()

    def eof_received(self) -> bool:
        """The client sends no more: it has left, as every client that closes its socket; the transport closes too."""
        return False

    def pause_writing(self) -> None:
        """The client does not read its answers."""
        self._write_paused = True
        self._regulate_reading()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._write_paused = False
        self._owe(0)
        self._pump()
        self._regulate_reading()

    # --- what the door calls ---

    def too_slow(self, now: float, idle_s: float) -> bool:
        """Whether the client was quiet for too long, or sends a request by the drop."""
        if self._upload_deadline is not None and now > self._upload_deadline and not self._read_paused:
            return True
        return not self._slots and now - self.last_active > idle_s

    def upload(self, now: float) -> "Upload[ClientConnection] | None":
        """The request that has not arrived as a whole, if there is one."""
        held = self._frames.partial_bytes
        if self._ending or not held:
            return None
        until = self._paused_at if self._read_paused else now  # the time in which nothing is read is not the client's
        return Upload(self, held, self._frames.received_bytes, until - self._upload_began)

    def resting(self, now: float) -> "Resting[ClientConnection] | None":
        """How long the client has asked for nothing, if nothing is under way."""
        if self._ending or self._slots or self._waiting:
            return None
        return Resting(self, now - self.last_active, self._served)

    def evict(self) -> None:
        """Close at once and free what was held for a request that is not complete."""
        self._frames.drop()
        self._account()
        self.abort()

    def unstall(self) -> None:
        """All connections together hold less again."""
        self._regulate_reading()

    def retire(self) -> None:
        """Start nothing more; what is under way is still answered."""
        self._retired = True
        self._waiting.clear()
        self._regulate_reading()

    def close(self) -> None:
        """End the connection, with what is written already still going out."""
        self._ending = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._ending = True
        if self._transport is not None:
            self._transport.abort()

    # --- requests and answers ---

    def _pump(self) -> None:
        """Start what may start."""
        while self._waiting and not self._ending and not self._write_paused and len(self._slots) < IN_FLIGHT_MAX:
            frame = self._waiting[0]
            try:
                key, version = peek(frame)
                if key == API_VERSIONS and version > self._door.router.by_key[key].versions[1]:
                    version = 0
                api = self._door.router.find(key, version)
                if self._slots and not (api.pipelined and self._slots[-1].pipelined):
                    return
                self._waiting.popleft()
                self._start(api, key, version, frame)
            except ProtocolViolation as error:
                self._end(error)

    def _start_rest(self) -> None:
        """Start the Produce requests that have come: a producer with acks=0 leaves when it has sent everything."""
        while self._waiting:
            frame = self._waiting[0]
            try:
                key, version = peek(frame)
                api = self._door.router.find(key, version)
                if not (api.pipelined and (not self._slots or self._slots[-1].pipelined)):
                    return
                self._waiting.popleft()
                self._start(api, key, version, frame)
            except ProtocolViolation:
                return

    def _start(self, api: Api, key: int, version: int, frame: bytearray) -> None:
        slot = ResponseSlot(api, len(frame), perf_counter())
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
        # The handler is called here and not in its task: what it starts at once stays in order of arrival.
        slot.task = self._loop.create_task(self._serve(slot, call, header, api.handle(call, request)))

    def _start_alone(self, slot: ResponseSlot, serving: Coroutine[Any, Any, None]) -> None:
        """Start a request whose handler is called later; so that requests stay in order, none behind it starts."""
        slot.pipelined = False
        self._slots.append(slot)
        slot.task = self._loop.create_task(serving)

    def _called(self, key: int, version: int, frame: bytearray) -> tuple[Header, Call]:
        header = read_header(frame, flexible=is_flexible(key, version))
        door = self._door
        call = Call(
            door.broker,
            key,
            version,
            header.client_id,
            self.peer,
            door.router,
            identity=self._identity,
            guard=door.guard,
            memory_short=door.memory_short,
        )
        return header, call

    async def _load_and_serve(self, slot: ResponseSlot, key: int, version: int, frame: bytearray) -> None:
        """Serve the first request of its version: its message classes are imported in a thread."""
        await self._door.guard.in_loader(load, key, version)
        try:
            header, call = self._called(key, version, frame)
            request = _read(slot.api, header, frame, LOOP_ITEMS_MAX)
        except TooManyItems:
            await self._serve_large(slot, call, header, frame)
        except ProtocolViolation as error:
            self._end(error)
        else:
            await self._serve(slot, call, header, slot.api.handle(call, request))

    async def _serve_large(self, slot: ResponseSlot, call: Call, header: Header, frame: bytearray) -> None:
        guard = self._door.guard
        async with AsyncExitStack() as place:
            await place.enter_async_context(guard.large_requests)
            if self._ending:
                return
            try:
                request = await guard.in_worker(_read, slot.api, header, frame)
            except ProtocolViolation as error:
                self._end(error)
                return
            if slot.waits:
                await place.aclose()  # it may wait for other clients, whose requests may need the place
            await self._serve(slot, call, header, slot.api.handle(call, request))

    async def _serve(self, slot: ResponseSlot, call: Call, header: Header, answering: Awaitable[Any]) -> None:
        flexible = is_flexible(header.key, header.version)
        try:
            answer = await self._handle(slot.api, call, answering)
            buffers = answer if answer is None or isinstance(answer, list) else [await call.encoded(answer)]
        except ProtocolViolation as error:
            self._end(error)
            return
        except Exception as error:
            log.exception("an answer could not be written", api=slot.api.name, version=header.version)
            self._end(error)
            return
        self._answer(slot, header, buffers, flexible=flexible and header.key != API_VERSIONS)

    async def _handle(self, api: Api, call: Call, answering: Awaitable[Any]) -> Any:
        try:
            answer = await answering
        except ProtocolViolation:
            raise
        except Exception as error:
            if not isinstance(error, TidemillError):
                log.exception("a handler failed", api=api.name, version=call.version, client_id=call.client_id)
            answer = call.refusal(error)
            if answer is None:
                raise ProtocolViolation(f"{api.name} {call.version} has no place for an error: {error}") from error
        if answer is not None and not isinstance(answer, list):
            codes = await call.in_worker(_error_counts, answer) if call.is_answer_large else _error_counts(answer)
            for code, count in codes.items():
                call.broker.telemetry.api(api.name).failed(code, count)
        return answer

    def _answer(self, slot: ResponseSlot, header: Header, buffers: Buffers | None, *, flexible: bool) -> None:
        if buffers is not None:
            size = sum(map(len, buffers)) + 4 + flexible
            prefix = _PREFIX.pack(size, header.correlation)
            buffers.insert(0, prefix + b"\0" if flexible else prefix)
        slot.buffers = buffers
        slot.done = True
        self._door.broker.telemetry.api(slot.api.name).answered(perf_counter() - slot.started)
        if self._slots and self._slots[0] is slot:
            self._write_ready()
            if not self._ending:
                self._pump()
                self._account()
                self._regulate_reading()

    def _write_ready(self) -> None:
        """Send the answers at the front of the row that are ready."""
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
        """Tell the door how many bytes of answers the client has not taken; only those of slow clients count."""
        if count != self._owed_bytes:
            self._door.owe(count - self._owed_bytes)
            self._owed_bytes = count

    def _end(self, error: BaseException) -> None:
        """Close because of what the client sent; answers that are ready still go out."""
        if self._ending:
            return
        log.info("connection closed", peer=self.peer, reason=str(error))
        self._waiting.clear()
        self._write_ready()
        self.close()

    def _deadline(self) -> float | None:
        size = self._frames.partial_size
        if self._upload_deadline is not None or not self._frames.partial_bytes:
            return self._upload_deadline
        return self._loop.time() + UPLOAD_GRACE_S + size / UPLOAD_BYTES_PER_S_MIN

    def _account(self) -> None:
        """Tell the door how many bytes of requests are held here."""
        held = self._pending_bytes + self._frames.partial_bytes
        change, self._held_bytes = held - self._held_bytes, held
        if change:
            self._door.hold(change)

    def _regulate_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        many = len(self._waiting) >= WAITING_REQUESTS_MAX or self._pending_bytes >= PENDING_BYTES_MAX
        crowded = self._door.is_crowded and self._held_bytes > CROWDED_BYTES_MAX
        if crowded:
            self._door.stall(self)
        full = many or crowded or self._write_paused or self._retired
        if full and not self._read_paused:
            self._read_paused = True
            self._paused_at = self._loop.time()
            self._transport.pause_reading()
        elif not full and self._read_paused:
            self._read_paused = False
            self._upload_deadline = None
            self._upload_began += self._loop.time() - self._paused_at
            self._transport.resume_reading()


def _read(api: Api, header: Header, frame: bytearray, *items_max: int) -> Any:
    """The request; without `items_max` the limit of its API counts."""
    if api.read is not None:
        return api.read(frame, header.body, header.version, *items_max)
    return read_body(header, frame, *items_max)


def _error_counts(answer: Any) -> dict[int, int]:
    return Counter(refusals(answer))
