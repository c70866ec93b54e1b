"""One consumer's stream: leases come down when they are due, extensions, releases and completions go up in batches.

Theory of operation. `_keep_connected` shakes hands, opens the stream, starts a writer and reads until the stream
ends; then it does the same again, with growing pauses, unless the broker refused for good, or nobody has ever answered
at its address. Operations wait in one
queue; the writer sends all that wait as one batch, so that a thousand completions cost a few round trips. A batch
that was sent but not answered when the stream broke is sent again on the next one: tokens make that safe, and a
completion that is answered with "no such message" the second time had arrived the first time.

A broker may send a message early by the length of the way; it is held back here until it is due by this machine's time
of day, but no longer than `HOLD_S_MAX`: a clock that was set must not stop the work.

A lease that ended while it waited here is not handed out. Its end is judged by this machine's monotonic clock,
counted from its arrival: the consumer's time of day may be wrong."""

import asyncio
import heapq
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any

import grpc.aio

from tidemill.client.timelines.connection import TimelineConnection
from tidemill.model.errors import TidemillError
from tidemill.model.timeline_errors import TimelineError, UnknownMessage, Unreachable, by_name
from tidemill.wire.grpc import timeline_pb2 as wire

OPERATIONS_MAX = 1_000
BATCHES_IN_FLIGHT_MAX = 4
"""With that many unanswered, operations wait and make the next batch larger."""
HANDSHAKE_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 5.0
END_TIMEOUT_S = 1.0
"""A call that is cancelled ends some time later, and not seldom after its event loop: gRPC logs that as an error in
whatever other loop the process runs. So a worker that closes ends its side and waits that long for the broker's."""
HOLD_S_MIN = 0.0005
HOLD_S_MAX = 0.05
NS_PER_MS = 1_000_000
DONE = wire.Outcome(changed=True)


log = logging.getLogger("tidemill.timeline")


@dataclass(frozen=True, slots=True)
class ClockState:
    """What the broker says about its clock: while it is in doubt, nothing is delivered."""

    in_doubt: bool
    reasons: tuple[str, ...] = ()


OnClock = Callable[[ClockState], None]


@dataclass(slots=True)
class Pending:
    """An operation on its way, and who waits for its outcome."""

    operation: wire.Operation
    outcome: "asyncio.Future[int]"
    asked_s: float
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Arrival:
    """A lease as it came, with the end of it on this machine's monotonic clock."""

    lease: wire.Lease
    ends_s: float

    @property
    def live(self) -> bool:
        """Whether the lease has not ended while it waited."""
        return time.monotonic() < self.ends_s


class Worker:
    """Receives leases for one consumer and reports what became of them."""

    def __init__(
        self, connection: TimelineConnection, greeting: wire.HandshakeRequest, on_clock: OnClock | None = None
    ) -> None:
        self._connection = connection
        self._greeting = greeting
        self._on_clock = on_clock
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
        self._failure: TidemillError | None = None
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._keep_connected())

    async def arrivals(self, idle_ms: int | None = None) -> deque[Arrival]:
        """All leases that are here, waiting for the first; none when nothing came within `idle_ms`, or after `close`.

        Whoever takes them hands them out one by one while they are `live`; `close` gives back what it left there.
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
        """Send one operation and wait for its outcome: the new end of the lease, or the error that refused it."""
        self._refuse_if_failed()
        pending = Pending(operation, asyncio.get_running_loop().create_future(), time.monotonic())
        self._waiting.append(pending)
        self._to_send.set()
        return await pending.outcome

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))

    async def close(self) -> None:
        """Ask for no more, give back what was not handed out, and end the stream."""
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
        self._fail(TimelineError("the worker was closed"))

    async def _give_back(self) -> None:
        """Release until nothing more arrives: a busy consumer gets no new leases, only those already on their way."""
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
            try:
                await self._one_stream()
                attempt = 0
            except grpc.aio.AioRpcError as error:
                failure = self._connection.typed(error)
                if await self._is_final(failure, began_s):
                    self._fail(failure)
                    return
            self._give_up_on_old()
            await self._pause(self._connection.pause_s(attempt))
            attempt += 1

    async def _is_final(self, failure: TidemillError, began_s: float) -> bool:
        """Whether trying again is of no use; where nobody answers, the next address has its turn."""
        if not isinstance(failure, Unreachable):
            self._connection.contact.made = True
            return not failure.retriable
        await self._connection.elsewhere(self._connection.address)
        return self._connection.contact.is_hopeless(began_s)

    async def _pause(self, length_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), length_s)

    def _give_up_on_old(self) -> None:
        """While the broker is away, operations wait for it, but not for ever: their outcome stays unknown."""
        oldest_s = time.monotonic() - ANSWER_TIMEOUT_S
        for pending in (*self._waiting, *(one for batch in self._sent.values() for one in batch)):
            if pending.asked_s < oldest_s and not pending.outcome.done():
                pending.outcome.set_exception(Unreachable(f"no answer from {self._connection.address}"))
        self._waiting = deque(one for one in self._waiting if not one.outcome.done())

    async def _one_stream(self) -> None:
        stub = await self._connection.stub()
        reply = await stub.Handshake(self._greeting, timeout=HANDSHAKE_TIMEOUT_S)
        self._connection.contact.made = True
        if self._closing.is_set():
            return
        self._call = call = stub.Work()
        await call.write(wire.WorkUp(start=wire.WorkStart(session=reply.session)))
        self._send_again()
        writer = asyncio.create_task(self._write(call))
        try:
            while (down := await call.read()) is not grpc.aio.EOF:
                self._take(down)
            if self._closing.is_set():
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
            case "clock":
                self._clock_changed(ClockState(down.clock.in_doubt, tuple(down.clock.reasons)))
            case "ping":
                stamp = time.time_ns() // 1_000
                pong = wire.Pong(sent_us=down.ping.sent_us, received_us=stamp, answered_us=time.time_ns() // 1_000)
                self._notices.append(wire.WorkUp(pong=pong))
                self._to_send.set()

    def _clock_changed(self, state: ClockState) -> None:
        if state.in_doubt:
            log.warning("the broker's clock is in doubt, nothing is delivered meanwhile: %s", "; ".join(state.reasons))
        else:
            log.info("the broker's clock is trusted again")
        if self._on_clock is not None:
            self._on_clock(state)

    def _arrive(self, leases: wire.Leases) -> None:
        now_s, wall_ms = time.monotonic(), time.time_ns() // NS_PER_MS
        for lease in leases.leases:
            arrival = Arrival(lease, now_s + lease.left_ms / 1_000)
            if lease.due_ms <= wall_ms:
                self._arrivals.append(arrival)
            else:
                heapq.heappush(self._early, (lease.due_ms, next(self._order), now_s + HOLD_S_MAX, arrival))
        if self._arrivals:
            self._arrived.set()
        if self._early:
            self._hand_over()

    def _hand_over(self) -> None:
        """Let go of what was held back and is due now; come again for the rest."""
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
            room = OPERATIONS_MAX if len(self._sent) < BATCHES_IN_FLIGHT_MAX else 0
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), room))]
            ups = [self._notices.popleft() for _ in range(len(self._notices))]
            if batch:
                self._number += 1
                self._sent[self._number] = batch
                operations = wire.Operations(number=self._number, operations=[one.operation for one in batch])
                ups.append(wire.WorkUp(operations=operations))
            try:
                for up in ups:
                    await call.write(up)
                if self._closing.is_set():
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


def release_of(lease: wire.Lease, delay_ms: int) -> wire.Operation:
    """The operation that gives a lease back."""
    return wire.Operation(action=wire.ACTION_RELEASE, seq=lease.seq, token=lease.token, ms=delay_ms)
