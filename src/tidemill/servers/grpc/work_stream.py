"""The stream of one consumer: the broker sends leases and outcomes, the consumer sends operations and pongs.

One task reads, one settles operations, and the handler itself writes; queues connect them. While one batch of
operations is written to the store, the next ones gather and are written together. Leases are split into messages of at
most `LEASES_BYTES_MAX`. The broker pings every `PING_S`. The pong gives the latency and the clock difference; a missing
pong means that the consumer has stalled.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from itertools import islice
from math import copysign
from time import perf_counter
from typing import Any

import structlog

from tidemill.clocks.core.drift_notices import DriftNotices
from tidemill.model.errors import TidemillError
from tidemill.model.timeline_errors import BadHandshake, BatchTooLarge, StoreUnavailable, TimelineError
from tidemill.security.core.resources import Operation
from tidemill.servers.grpc.call import GrpcCall
from tidemill.servers.grpc.channel_counts import ChannelCounts
from tidemill.servers.grpc.client_sessions import ClientSessions
from tidemill.servers.grpc.error_status import UNEXPECTED
from tidemill.servers.grpc.move_hints import MoveHints
from tidemill.timelines.consumer import Granted, TimelineConsumer
from tidemill.timelines.core.lease import TOOK_EFFECT, Command, CommandOutcome, Complete, Extend, Release, error_of
from tidemill.timelines.core.load import AVAILABLE_MAX
from tidemill.timelines.core.timeline import resource_of
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.tracing.timeline_tracer import TimelineTracer
from tidemill.wire.grpc import timeline_pb2 as wire

ACTIONS = frozenset(wire.Action.values()) - {wire.ACTION_UNSPECIFIED}
OPERATIONS_MAX = 1_000
SETTLE_MAX = 5_000
BATCHES_WAITING_MAX = 100
GATHER_OPERATIONS = 16
GATHER_S = 0.005
"""After a batch of this size, the next one gathers for a while: a busy consumer causes few, large writes."""
LEASES_BYTES_MAX = 4 * 1024 * 1024
PING_S = 1.0
OWN_CLOCK = "client"
"""The target of the drift of the receiver's own clock."""
START_TIMEOUT_S = 10.0

log = structlog.get_logger("tidemill.grpc")


class WorkStream:
    """One consumer's stream, from its start to its end."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        timeline: str,
        consumer_id: str,
        counts: ChannelCounts,
        tracer: TimelineTracer | None,
        drifts: Callable[[], dict[str, float]] = dict,
    ) -> None:
        self._drifts = drifts
        self._notices = DriftNotices()
        self._own_drift_ms = 0.0
        self._counts = counts
        self._consumer_id = consumer_id
        self._tracer = tracer
        self._dispatcher = dispatcher
        self._timeline = timeline
        self._outbox: deque[wire.WorkDown] = deque()
        self._ready = asyncio.Event()
        self._operations: deque[tuple[wire.Operations, float]] = deque()
        """Batches, and when they were received."""
        self._to_settle = asyncio.Event()
        self._room = asyncio.Semaphore(BATCHES_WAITING_MAX)
        self._ended = False
        self._error: TidemillError | None = None

    def push(self, granted: list[Granted]) -> None:
        """Send leases to this consumer."""
        now_ms = self._dispatcher.clock.now_ms()
        for piece in _in_pieces(granted):
            down = wire.WorkDown()
            add = down.leases.leases.add
            for message, lease in piece:
                add(
                    id=message.id,
                    seq=message.seq,
                    token=lease.token,
                    body=message.body or b"",
                    key=message.key,
                    due_ms=message.scheduled_ms,
                    attempts=lease.attempts,
                    expires_ms=lease.until_ms,
                    left_ms=lease.until_ms - now_ms,
                )
            self._send(down)
        if self._tracer is not None:
            self._trace_leases(self._tracer, granted)

    def _trace_leases(self, tracer: TimelineTracer, granted: Sequence[Granted]) -> None:
        for message, lease in granted:
            tracer.leased(
                self._timeline,
                message.id,
                message.scheduled_ms,
                message.seq,
                lease.token,
                attempts=lease.attempts,
                consumer=self._consumer_id,
            )

    def notify(self, reasons: Sequence[str]) -> None:
        """Report that the broker's clock is in doubt for these reasons, or trusted again if there are none."""
        known = self._notices.apart(self._known_drifts())
        self._send(wire.WorkDown(clock=clock_state(reasons, known)))

    def _known_drifts(self) -> dict[str, float]:
        return {**self._drifts(), OWN_CLOCK: self._own_drift_ms}

    def _notify_drifts(self) -> None:
        """Report which clocks differ by more than a second, when this changes."""
        if self._notices.changes(self._known_drifts()):
            self.notify(self._dispatcher.guard.clock_reasons)

    def end(self, error: TidemillError | None = None) -> None:
        """Send the rest of the outbox and end the stream, with an error if there is one."""
        self._error = self._error or error
        self._ended = True
        self._ready.set()

    def _send(self, down: wire.WorkDown) -> None:
        self._outbox.append(down)
        self._ready.set()

    async def downs(self) -> AsyncIterator[wire.WorkDown]:
        """Yield the messages to the consumer, until the stream ends."""
        while True:
            while self._outbox:
                yield self._outbox.popleft()
            if self._ended:
                break
            self._ready.clear()
            await self._ready.wait()
        if self._error is not None:
            raise self._error

    async def read(self, ups: AsyncIterator[wire.WorkUp], consumer: TimelineConsumer) -> None:
        """Handle the consumer's messages, until it ends its side."""
        try:
            async for up in ups:
                await self._take(up, consumer)
            self.end()
        except TidemillError as error:
            self.end(error)
        except Exception:
            log.exception("work_stream_read_failed", timeline=self._timeline)
            self.end(StoreUnavailable(UNEXPECTED))

    async def _take(self, up: wire.WorkUp, consumer: TimelineConsumer) -> None:
        self._dispatcher.alive(self._timeline, consumer)
        match up.WhichOneof("what"):
            case "operations":
                await self._accept(up.operations)
            case "pong":
                self._pong(up.pong, consumer)
            case "readiness":
                self._dispatcher.ready(self._timeline, consumer, busy=up.readiness.busy)
            case _:
                raise BadHandshake("the stream has already started; send operations, pongs or readiness")

    async def _accept(self, batch: wire.Operations) -> None:
        if len(batch.operations) > OPERATIONS_MAX:
            raise BatchTooLarge(f"the batch has {len(batch.operations)} operations; the limit is {OPERATIONS_MAX}")
        if not ACTIONS.issuperset(one.action for one in batch.operations):
            raise TimelineError("an operation must be complete, release or extend; check the client's version")
        await self._room.acquire()
        self._operations.append((batch, perf_counter()))
        self._to_settle.set()

    async def settle(self) -> None:
        """Settle operations in a loop: all waiting batches, in order, with one write to the store."""
        try:
            while True:
                await self._to_settle.wait()
                self._to_settle.clear()
                while self._operations:
                    if await self._settle_some() >= GATHER_OPERATIONS:
                        await asyncio.sleep(GATHER_S)
        except Exception:
            log.exception("operations_failed", timeline=self._timeline)
            # Without outcomes, the consumer would wait for them as long as its stream is open.
            self.end(StoreUnavailable(UNEXPECTED))

    async def _settle_some(self) -> int:
        """Settle the waiting batches and return the number of their operations."""
        batches = [self._operations.popleft()]
        count = len(batches[0][0].operations)
        while self._operations and count + len(self._operations[0][0].operations) <= SETTLE_MAX:
            batches.append(self._operations.popleft())
            count += len(batches[-1][0].operations)
        now_ms = self._dispatcher.clock.now_ms()
        commands = [_command(one, now_ms) for batch, _ in batches for one in batch.operations]
        try:
            results: Sequence[CommandOutcome | TimelineError] = await self._dispatcher.settle(self._timeline, commands)
        except TimelineError as error:
            results = [error] * len(commands)
        if self._tracer is not None:
            self._trace_outcomes(self._tracer, commands, results)
        answers = iter(zip(commands, results, strict=True))
        for batch, received_s in batches:
            self._room.release()
            settled = list(islice(answers, len(batch.operations)))
            self._send(wire.WorkDown(outcomes=_outcomes(batch.number, settled)))
            self._counts.settled(settled, received_s)
        return count

    def _trace_outcomes(
        self, tracer: TimelineTracer, commands: Sequence[Command], results: Sequence[CommandOutcome | TimelineError]
    ) -> None:
        for command, result in zip(commands, results, strict=True):
            if not isinstance(command, Complete | Release):
                continue
            error = result if isinstance(result, TimelineError) else error_of(result)
            is_last = isinstance(command, Complete)
            tracer.settled(
                self._timeline,
                "complete" if is_last else "release",
                command.seq,
                command.token,
                is_last=is_last,
                error="" if error is None else type(error).__name__,
            )

    def _pong(self, pong: wire.Pong, consumer: TimelineConsumer) -> None:
        back_us = self._dispatcher.clock.wall_us()
        round_trip_us = (back_us - pong.sent_us) - (pong.answered_us - pong.received_us)
        self._counts.round_trip(max(0, round_trip_us) / 1e6)
        drift_us = ((pong.received_us - pong.sent_us) + (pong.answered_us - back_us)) // 2
        # A slow round trip may be slow in one direction only, so that much of the difference proves nothing.
        provable_us = max(0, abs(drift_us) - max(0, round_trip_us // 2))
        self._own_drift_ms = copysign(provable_us / 1_000, drift_us)
        self._dispatcher.heard(self._timeline, consumer, latency_us=max(0, round_trip_us // 2), drift_us=drift_us)

    def _load(self) -> wire.TimelineLoad | None:
        load = self._dispatcher.load(self._timeline)
        if load is None:
            return None
        return wire.TimelineLoad(
            available=load.available,
            available_max=AVAILABLE_MAX,
            arrivals_per_second=load.arrivals_per_s,
            late_ms=load.late_ms,
        )

    def _hint(self, call: GrpcCall, hints: MoveHints) -> None:
        hint = hints.of_timeline(self._timeline, self._consumer_id, call)
        if hint is not None:
            move = wire.MoveHint(addresses=[hint.address], reason=hint.reason, window_ms=hint.window_ms)
            self._send(wire.WorkDown(move=move))

    async def ping(self, call: GrpcCall, hints: MoveHints) -> None:
        """Ping in a loop, send hints to move, and end the stream when the client may not read any more."""
        while True:
            ping = wire.Pinged(sent_us=self._dispatcher.clock.wall_us(), load=self._load())
            self._send(wire.WorkDown(ping=ping))
            await asyncio.sleep(PING_S)
            self._hint(call, hints)
            self._notify_drifts()
            try:
                await call.check_login(self._dispatcher.clock.now_ms())
                call.rights.check_topic(Operation.READ, resource_of(self._timeline))
            except TidemillError as error:
                self.end(error)
                return


async def work(
    dispatcher: Dispatcher,
    sessions: ClientSessions,
    ups: AsyncIterator[wire.WorkUp],
    call: GrpcCall,
    counts: ChannelCounts,
    hints: MoveHints,
    tracer: TimelineTracer | None = None,
    drifts: Callable[[], dict[str, float]] = dict,
) -> AsyncGenerator[wire.WorkDown, None]:
    """Serve one consumer's stream."""
    try:
        first = await asyncio.wait_for(anext(aiter(ups)), START_TIMEOUT_S)
    except (TimeoutError, StopAsyncIteration):
        raise BadHandshake(f"no start message within {START_TIMEOUT_S:g} s; send it first") from None
    if first.WhichOneof("what") != "start":
        raise BadHandshake("the first message of a stream must be its start")
    timeline, terms = sessions.consumer(call.caller.principal, first.start.session)
    call.rights.check_topic(Operation.READ, resource_of(timeline))
    stream = WorkStream(dispatcher, timeline, terms.id, counts, tracer, drifts)
    consumer = dispatcher.attach(timeline, terms, push=stream.push, end=stream.end, notify=stream.notify)
    if first.start.busy:
        dispatcher.ready(timeline, consumer, busy=True)
    tasks = [
        asyncio.create_task(one) for one in (stream.read(ups, consumer), stream.settle(), stream.ping(call, hints))
    ]
    try:
        with counts.consuming():
            async for down in stream.downs():
                yield down
    finally:
        dispatcher.detach(timeline, consumer)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def clock_state(reasons: Sequence[str], drifts_ms: Mapping[str, int]) -> wire.ClockState:
    """The state of the broker's clock, with the clocks that differ from it."""
    drifts = [wire.ClockDrift(target=target, drift_ms=ms) for target, ms in drifts_ms.items()]
    return wire.ClockState(in_doubt=bool(reasons), reasons=reasons, drifts=drifts)


def _in_pieces(granted: list[Granted]) -> Iterator[list[Granted]]:
    """Split the leases into groups of at most `LEASES_BYTES_MAX`; mostly there is one."""
    if sum(one.message.size for one in granted) <= LEASES_BYTES_MAX:
        yield granted
        return
    piece: list[Granted] = []
    size = 0
    for one in granted:
        if piece and size + one.message.size > LEASES_BYTES_MAX:
            yield piece
            piece, size = [], 0
        piece.append(one)
        size += one.message.size
    yield piece


def _command(operation: wire.Operation, now_ms: int) -> Command:
    match operation.action:
        case wire.ACTION_EXTEND:
            return Extend(operation.seq, operation.token, now_ms + operation.ms)
        case wire.ACTION_RELEASE:
            return Release(operation.seq, operation.token, now_ms + operation.ms)
        case _:
            return Complete(operation.seq, operation.token)


def _outcomes(number: int, results: Sequence[tuple[Command, CommandOutcome | TimelineError]]) -> wire.Outcomes:
    if all(result in TOOK_EFFECT and not isinstance(command, Extend) for command, result in results):
        return wire.Outcomes(number=number, all_done=True)
    return wire.Outcomes(number=number, outcomes=[_outcome(*one) for one in results])


def _outcome(command: Command, result: CommandOutcome | TimelineError) -> wire.Outcome:
    if result in TOOK_EFFECT:
        return wire.Outcome(changed=True, until_ms=command.until_ms if isinstance(command, Extend) else 0)
    error: Any = result if isinstance(result, TimelineError) else error_of(result)
    return wire.Outcome(error=type(error).__name__, reason=str(error))
