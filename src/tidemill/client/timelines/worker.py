"""One consumer's stream: it receives leases when they are due, and sends extensions, releases and completions in
batches.

`_keep_connected` does the handshake, opens the stream, starts a writer and reads until the stream ends. Then it does
the same again, with growing pauses. It stops if the broker rejected it permanently, or if no broker has ever answered.

Operations wait in one queue. The writer sends all that wait as one batch, so that a thousand completions cost a few
round trips. A batch without an answer when the stream broke is sent again on the next stream. Tokens make that safe. If
a repeated completion is answered with "no such message", the first one had arrived.

A broker may send a message early by the network latency. It is held back here until it is due by this machine's wall
clock, but no longer than `HOLD_S_MAX`: a clock that was set must not stop the work.

A lease that expired while it waited here is not delivered. This machine's monotonic clock measures that from its
arrival, because the consumer's wall clock may be wrong.
"""

import asyncio
import heapq
import logging
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any

import grpc.aio

from tidemill.client.broker_selection import reachable
from tidemill.client.hint_rules import HintRules
from tidemill.client.kafka.errors import AuthenticationFailed
from tidemill.client.timelines.clock_state import ClockNotices, OnClock
from tidemill.client.timelines.connection import TimelineConnection
from tidemill.client.timelines.held_leases import HeldLeases
from tidemill.model.errors import TidemillError
from tidemill.model.timeline_errors import TimelineError, TimelineLoginFailed, UnknownMessage, Unreachable, by_name
from tidemill.wire.grpc import timeline_pb2 as wire

OPERATIONS_MAX = 1_000
BATCHES_IN_FLIGHT_MAX = 4
"""While this many batches are unanswered, operations wait and make the next batch larger."""
HANDSHAKE_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0
END_TIMEOUT_S = 1.0
"""How long a closing worker waits for the broker to end the stream, after it has ended its side.

A cancelled call ends some time later, often after its event loop. gRPC then logs an error in another loop of the
process.
"""
DRAIN_S = 5.0
"""How long a consumer that moves waits for the end of the leases that it holds."""
HOLD_S_MIN = 0.0005
HOLD_S_MAX = 0.05
NS_PER_MS = 1_000_000
DONE = wire.Outcome(changed=True)


log = logging.getLogger("tidemill.timeline")


@dataclass(frozen=True, slots=True)
class TimelineLoad:
    """What waits for the consumers of a timeline, as the broker measured it about a second ago."""

    available: int
    """Messages that are due and that no consumer holds; the broker counts up to `available_max`."""
    available_max: int
    arrivals_per_second: float
    """Messages that become available per second, smoothed over some seconds."""
    late_ms: int
    """How late messages are pushed now; while none is pushed, how long the oldest one waits."""


@dataclass(slots=True)
class Pending:
    """An operation that was sent, and the future of its outcome."""

    operation: wire.Operation
    outcome: "asyncio.Future[int]"
    asked_s: float
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A received lease, with its end on this machine's monotonic clock."""

    lease: wire.Lease
    ends_s: float

    @property
    def live(self) -> bool:
        """Whether the lease has not expired while it waited."""
        return time.monotonic() < self.ends_s


class Worker:
    """Receives leases for one consumer and reports their outcomes."""

    def __init__(
        self, connection: TimelineConnection, greeting: wire.HandshakeRequest, on_clock: OnClock | None = None
    ) -> None:
        self._connection = connection.of_consumer()
        self._greeting = greeting
        self.clock = ClockNotices(on_clock)
        self._arrivals: deque[Arrival] = deque()
        self._taken: deque[Arrival] = deque()
        self._early: list[tuple[int, int, float, Arrival]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: deque[Pending] = deque()
        self._notices: deque[wire.WorkUp] = deque()
        self._sent: dict[int, list[Pending]] = {}
        self._number = 0
        self._arrived = asyncio.Event()
        self._to_send = asyncio.Event()
        self._call: Any = None
        self._was_greeted = False
        self._was_open = False
        self._failure: TidemillError | None = None
        self._closing = asyncio.Event()
        self._held = HeldLeases()
        self._operated = asyncio.Event()
        self._rules = HintRules(follows=connection.follow_hints)
        self._mover: asyncio.Task[None] | None = None
        self._leaving = False
        """Whether this stream ends because the consumer moves to another broker."""
        self._target = ""
        """The broker for the next stream, if a hint named one."""
        self._trial = ""
        """The broker of a hint, until it has accepted the handshake."""
        self.load: TimelineLoad | None = None
        self.is_busy = False
        self._task = asyncio.create_task(self._keep_connected())

    async def arrivals(self, idle_ms: int | None = None) -> deque[Arrival]:
        """Wait for the first lease and return all that have arrived; none after `idle_ms` without one, or after
        `close`.

        The caller delivers them one by one while they are `live`. `close` releases those that are left in the deque.
        """
        timeout = None if idle_ms is None else idle_ms / 1_000
        while True:
            arrived, self._arrivals = self._arrivals, deque()
            self._arrived.clear()
            if arrived:
                self._taken = arrived
                return arrived
            if self._closing.is_set():
                return deque()
            self._refuse_if_failed()
            try:
                await asyncio.wait_for(self._arrived.wait(), timeout)
            except TimeoutError:
                return deque()

    async def operate(self, operation: wire.Operation) -> int:
        """Send one operation and wait for its outcome: return the new end of the lease, or raise the error."""
        self._refuse_if_failed()
        pending = Pending(operation, asyncio.get_running_loop().create_future(), time.monotonic())
        self._waiting.append(pending)
        self._to_send.set()
        try:
            until_ms = await pending.outcome
        except TidemillError:
            self._held.operated(operation, time.monotonic(), succeeded=False)
            raise
        else:
            self._held.operated(operation, time.monotonic(), succeeded=True)
            return until_ms
        finally:
            self._operated.set()

    @property
    def address(self) -> str:
        """The address of the broker that is used now."""
        return self._connection.address

    @property
    def moves(self) -> int:
        """How often the consumer has moved to another broker because of a hint."""
        return self._rules.moves

    async def set_busy(self, *, busy: bool) -> None:
        """Report whether this consumer can take more messages; a stream that is opened later starts with it."""
        self._refuse_if_failed()
        if self.is_busy == busy:
            return
        self.is_busy = busy
        if self._mover is not None:
            return  # the broker was asked to send nothing more; the next stream starts with this state
        self._notices.append(wire.WorkUp(readiness=wire.Readiness(busy=busy)))
        self._to_send.set()

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))

    async def close(self) -> None:
        """Request no more leases, release those that were not delivered, and end the stream."""
        if self._mover is not None:
            self._mover.cancel()
        self._arrivals.extend(self._taken)
        self._taken.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._arrivals.extend(entry[3] for entry in self._early)
        self._early.clear()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._give_back()
        except (TimeoutError, TidemillError):
            self._arrivals.clear()
        self._closing.set()
        self._to_send.set()
        await asyncio.wait([self._task], timeout=END_TIMEOUT_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._connection.end()
        self._fail(TimelineError("the worker is closed"))

    async def _give_back(self) -> None:
        """Release until nothing more arrives: a busy consumer gets only the leases that are already on their way."""
        if self._failure is not None or self._call is None:
            return
        self._notices.append(wire.WorkUp(readiness=wire.Readiness(busy=True)))
        self._to_send.set()
        under_way = [
            one.outcome for one in (*self._waiting, *(each for batch in self._sent.values() for each in batch))
        ]
        while self._arrivals or under_way:
            unused, self._arrivals = self._arrivals, deque()
            returned = [self.operate(release_of(one.lease, 0)) for one in unused]
            await asyncio.gather(*returned, *under_way, return_exceptions=True)
            under_way = []

    async def _keep_connected(self) -> None:
        try:
            await self._connect_forever()
        except Exception as error:
            self._fail(TimelineError(f"the worker ended with an unexpected error: {error!r}"))
            raise

    async def _connect_forever(self) -> None:
        attempt = 0
        began_s = time.monotonic()
        while not self._closing.is_set():
            await self._change_broker()
            try:
                await self._one_stream()
                attempt = 0
            except (grpc.aio.AioRpcError, AuthenticationFailed) as error:
                failure = self._connection.typed(error) if isinstance(error, grpc.aio.AioRpcError) else error
                if await self._is_final(failure, began_s):
                    self._fail(failure)
                    return
            self._give_up_on_old()
            await self._pause(self._connection.pause_s(attempt))
            attempt += 1

    async def _is_final(self, failure: TidemillError, began_s: float) -> bool:
        """Whether a retry is of no use. If no broker answers, switch to the next address."""
        if self._trial:
            log.warning("move_failed: %s does not serve this consumer: %s", self._trial, failure)
            self._rules.failed(self._trial, _now_ms())
            self._trial = ""
            await self._connection.move_back()
            return False
        if not isinstance(failure, Unreachable):
            self._connection.contact.made = True
            return not failure.retriable and not self._can_log_in_again(failure)
        await self._connection.switch_address(self._connection.address)
        return self._connection.contact.is_hopeless(began_s)

    def _can_log_in_again(self, failure: TidemillError) -> bool:
        """Whether the login ended while the stream was open, and there may be a newer token, or will be one later."""
        login = self._connection.security.login
        if isinstance(failure, AuthenticationFailed):
            log.warning("token_not_fetched: %s", failure)
            return self._was_greeted
        is_over = self._was_open and isinstance(failure, TimelineLoginFailed)
        return is_over and login is not None and login.renew(login.newest)

    async def _pause(self, length_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), length_s)

    def _give_up_on_old(self) -> None:
        """Fail old operations: they wait for an unreachable broker, but not forever. Their outcome stays unknown."""
        oldest_s = time.monotonic() - ANSWER_TIMEOUT_S
        for pending in (*self._waiting, *(one for batch in self._sent.values() for one in batch)):
            if pending.asked_s < oldest_s and not pending.outcome.done():
                pending.outcome.set_exception(
                    Unreachable(f"no answer from {self._connection.address}; the outcome is unknown")
                )
        self._waiting = deque(one for one in self._waiting if not one.outcome.done())

    async def _one_stream(self) -> None:
        self._was_open = False
        stub = await self._connection.stub()
        reply = await stub.Handshake(self._greeting, timeout=HANDSHAKE_TIMEOUT_S)
        self._was_greeted = True
        self._trial = ""
        self._connection.contact.made = True
        if self._closing.is_set():
            return
        self._call = call = stub.Work()
        is_busy = self.is_busy
        await call.write(wire.WorkUp(start=wire.WorkStart(session=reply.session, busy=is_busy)))
        self._send_again()
        if self.is_busy != is_busy:
            self._notices.append(wire.WorkUp(readiness=wire.Readiness(busy=self.is_busy)))
            self._to_send.set()
        writer = asyncio.create_task(self._write(call))
        try:
            while (down := await call.read()) is not grpc.aio.EOF:
                self._was_open = True
                self._take(down)
            if self._closing.is_set() or self._leaving:
                await writer
            code = await call.code()
            if code is not grpc.StatusCode.OK:
                raise grpc.aio.AioRpcError(
                    code, await call.initial_metadata(), await call.trailing_metadata(), details=await call.details()
                )
        finally:
            self._call = None
            writer.cancel()
            call.cancel()

    def _take(self, down: wire.WorkDown) -> None:
        match down.WhichOneof("what"):
            case "leases":
                self._arrive(down.leases)
            case "outcomes":
                self._settle(down.outcomes)
            case "move":
                self._hinted(down.move)
            case "clock":
                self.clock.take(down.clock)
            case "ping":
                if down.ping.HasField("load"):
                    self.load = _load_of(down.ping.load)
                stamp = time.time_ns() // 1_000
                pong = wire.Pong(sent_us=down.ping.sent_us, received_us=stamp, answered_us=time.time_ns() // 1_000)
                self._notices.append(wire.WorkUp(pong=pong))
                self._to_send.set()

    def _hinted(self, hint: wire.MoveHint) -> None:
        if self._mover is not None or self._closing.is_set():
            return
        target = self._rules.target(hint.addresses, hint.window_ms, _now_ms(), self._connection.address)
        if target is not None:
            self._mover = asyncio.create_task(self._leave_for(target, hint.reason))

    async def _leave_for(self, target: str, reason: str) -> None:
        """Take nothing more, finish what this consumer holds, and end the stream; the next one is at the target.

        A lease that is still held then stays valid, because its token counts at every broker of the timeline.
        """
        if not await reachable([target], self._connection.security):
            self._rules.failed(target, _now_ms())
            self._mover = None
            return
        self._rules.moved(_now_ms())
        log.info("moving to the broker at %s: %s", target, reason)
        self._notices.append(wire.WorkUp(readiness=wire.Readiness(busy=True)))
        self._to_send.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._drain()
        self._target, self._leaving = target, True
        self._to_send.set()

    async def _drain(self) -> None:
        """Wait until every lease that arrived is completed or released, and the broker has confirmed it."""
        while self._waiting or self._sent or self._held.count(time.monotonic()):
            self._operated.clear()
            await self._operated.wait()

    async def _change_broker(self) -> None:
        """After a stream that ended because of a hint, use the broker that it named."""
        target, self._target, self._leaving = self._target, "", False
        if target:
            self._trial, self._mover = target, None
            await self._connection.move_to(target)

    def _arrive(self, leases: wire.Leases) -> None:
        now_s, wall_ms = time.monotonic(), time.time_ns() // NS_PER_MS
        for lease in leases.leases:
            arrival = Arrival(lease, now_s + lease.left_ms / 1_000)
            self._held.add(lease.seq, lease.token, arrival.ends_s, now_s)
            if lease.due_ms <= wall_ms:
                self._arrivals.append(arrival)
            else:
                heapq.heappush(self._early, (lease.due_ms, next(self._order), now_s + HOLD_S_MAX, arrival))
        if self._arrivals:
            self._arrived.set()
        if self._early:
            self._hand_over()

    def _hand_over(self) -> None:
        """Deliver held-back leases that are due now, and set a timer for the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wall_ms = time.time_ns() / NS_PER_MS
        while self._early and (self._early[0][0] <= wall_ms or self._early[0][2] <= time.monotonic()):
            self._arrivals.append(heapq.heappop(self._early)[3])
            self._arrived.set()
        if self._early:
            wait_s = min(max((self._early[0][0] - wall_ms) / 1_000, HOLD_S_MIN), HOLD_S_MAX)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._hand_over)

    async def _write(self, call: Any) -> None:
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            capacity = OPERATIONS_MAX if len(self._sent) < BATCHES_IN_FLIGHT_MAX else 0
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), capacity))]
            ups = [self._notices.popleft() for _ in range(len(self._notices))]
            if batch:
                self._number += 1
                self._sent[self._number] = batch
                operations = wire.Operations(number=self._number, operations=[one.operation for one in batch])
                ups.append(wire.WorkUp(operations=operations))
            try:
                for up in ups:
                    await call.write(up)
                if self._closing.is_set() or self._leaving:
                    await call.done_writing()
                    return
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return

    def _send_again(self) -> None:
        self._notices.clear()
        for number in sorted(self._sent, reverse=True):
            for pending in reversed(self._sent.pop(number)):
                pending.repeated = True
                self._waiting.appendleft(pending)
        if self._waiting:
            self._to_send.set()

    def _settle(self, outcomes: wire.Outcomes) -> None:
        sent = self._sent.pop(outcomes.number, [])
        answers = repeat(DONE) if outcomes.all_done else outcomes.outcomes
        for pending, outcome in zip(sent, answers, strict=False):
            if not pending.outcome.done():
                _resolve(pending, outcome)
        if self._waiting:
            self._to_send.set()

    def _fail(self, failure: TidemillError) -> None:
        self._failure = self._failure or failure
        for pending in (*self._waiting, *(one for batch in self._sent.values() for one in batch)):
            if not pending.outcome.done():
                pending.outcome.set_exception(type(failure)(str(failure)))
        self._waiting.clear()
        self._sent.clear()
        self._arrived.set()


def _resolve(pending: Pending, outcome: wire.Outcome) -> None:
    done_before = pending.repeated and pending.operation.action == wire.ACTION_COMPLETE
    if outcome.error and not (done_before and outcome.error == UnknownMessage.__name__):
        pending.outcome.set_exception(by_name(outcome.error)(outcome.reason))
    else:
        pending.outcome.set_result(outcome.until_ms)


def _load_of(load: wire.TimelineLoad) -> TimelineLoad:
    return TimelineLoad(load.available, load.available_max, load.arrivals_per_second, load.late_ms)


def _now_ms() -> int:
    return time.monotonic_ns() // NS_PER_MS


def release_of(lease: wire.Lease, delay_ms: int) -> wire.Operation:
    """Return the operation that releases a lease."""
    return wire.Operation(action=wire.ACTION_RELEASE, seq=lease.seq, token=lease.token, ms=delay_ms)
