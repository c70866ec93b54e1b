"""The quotas of one connection: counts its requests, and says until when the connection is muted (KIP-219).

A muted connection reads nothing and starts no request; responses are still sent. Brokers of the cluster have no quota.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tidemill.security.core.quotas import QuotaKind
from tidemill.security.core.throttle import Throttle
from tidemill.servers.kafka.api import Api, Buffers, Call, ConnectionIdentity
from tidemill.servers.kafka.measured_steps import MeasuredSteps
from tidemill.servers.kafka.throttle_time import PRODUCE
from tidemill.wire.kafka.requests import is_flexible, read_header

INDEBTED_HOLD_S_MAX = 20.0
"""How long the first Produce request of a connection waits at most while its client is above a quota."""
_LOGIN_ONLY = frozenset({17, 36})


class ConnectionThrottle:
    """What one connection has used, and whether it is muted."""

    __slots__ = ("_identity", "_loop", "_quotas", "_timer", "is_checked", "is_muted")

    def __init__(self, quotas: Throttle, identity: ConnectionIdentity) -> None:
        self._quotas = quotas
        self._identity = identity
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.is_muted = False
        self.is_checked = False
        """Whether the first Produce request was checked for debt."""

    def mute(self, wait_s: float, unmute: Callable[[], None]) -> None:
        """Mute the connection, and call `unmute` when the time is over. A longer time that runs already counts."""
        until = self._loop.time() + wait_s
        if self._timer is not None:
            if until <= self._timer.when():
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(until, unmute)
        self.is_muted = True

    def end(self) -> None:
        """The connection is not muted any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_muted = False

    def debt_s(self, version: int, frame: bytearray) -> float:
        """How long the first Produce request waits: a new connection must not be a way around a quota."""
        self.is_checked = True
        if not self._quotas.is_enabled or self._identity.node_id is not None:
            return 0.0
        header = read_header(frame, flexible=is_flexible(PRODUCE, version))
        user, now = self._identity.principal.name, self._loop.time()
        return min(self._quotas.delay(QuotaKind.PRODUCE, user, header.client_id, now), INDEBTED_HOLD_S_MAX)

    def count_produce(self, call: Call, size: int) -> float:
        """Count a Produce request when it starts; how long the requests that have arrived behind it wait."""
        if self._identity.node_id is not None or not self._identity.is_authenticated:
            return 0.0
        user, now = self._identity.principal.name, self._loop.time()
        return self._quotas.record(QuotaKind.PRODUCE, user, call.client_id, size, now)

    def count_answer(self, api: Api, call: Call) -> None:
        """Let a client that is above a quota wait after its response."""
        if api.key in _LOGIN_ONLY or self._identity.node_id is not None or not self._identity.is_authenticated:
            return
        user, now = self._identity.principal.name, self._loop.time()
        if api.key == PRODUCE:
            call.throttle(self._quotas.delay(QuotaKind.PRODUCE, user, call.client_id, now))
        if self._quotas.measures_time:
            call.throttle(self._quotas.record_time(user, call.client_id, call.spent_s, now))

    def measured(self, call: Call, answering: Awaitable[Any]) -> Awaitable[Any]:
        """The same, with its time counted where a quota needs it."""
        return MeasuredSteps(call, answering) if self._quotas.measures_time else answering

    async def encoded(self, call: Call, answer: Any) -> Buffers:
        """The response as bytes. The time that this takes counts for the next request of the client."""
        if not self._quotas.measures_time or self._identity.node_id is not None:
            return [await call.encoded(answer)]
        before_s = call.spent_s
        encoded = await MeasuredSteps(call, call.encoded(answer))
        user, now = self._identity.principal.name, self._loop.time()
        self._quotas.spend_time(user, call.client_id, call.spent_s - before_s, now)
        return [encoded]
