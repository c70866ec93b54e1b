"""Channels to the members of etcd: one is in use, and the next is tried when it does not answer."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from aetcd import rpc

CALL_S = 2.0
"""How long one member has for one answer."""
PAUSE_S = 0.1
"""Between two tries."""
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A member that went and came back is another connection: nothing of the last one's backoff may stick to it.
    ("grpc.use_local_subchannel_pool", 1),
)
_NOT_THERE = frozenset(
    {
        rpc.StatusCode.UNAVAILABLE,
        rpc.StatusCode.DEADLINE_EXCEEDED,
        rpc.StatusCode.CANCELLED,
        rpc.StatusCode.UNKNOWN,
        rpc.StatusCode.INTERNAL,
        rpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
"""What another member, or the same one a moment later, may answer otherwise."""

log = structlog.get_logger("tidemill.cluster")


class Line:
    """A channel to a member, and what can be called on it: made once, for each costs as much as a call."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.keys = rpc.KVStub(channel)
        self.leases = rpc.LeaseStub(channel)
        self.watches = rpc.WatchStub(channel)


class Channels:
    """The members of one etcd, of which one is asked."""

    def __init__(self, members: Sequence[str]) -> None:
        self.members = tuple(members)
        self._at = 0
        self._open: dict[str, Line] = {}

    def current(self) -> tuple[str, "Line"]:
        """The member in use and the line to it."""
        member = self.members[self._at % len(self.members)]
        line = self._open.get(member)
        if line is None:
            line = self._open[member] = Line(rpc.insecure_channel(member, options=OPTIONS))
        return member, line

    def leave(self, member: str) -> None:
        """This member did not answer: the next one is asked from now on."""
        if self.members[self._at % len(self.members)] == member:
            self._at += 1

    async def call(self, method: Callable[[Line], Any], request: Any, deadline: float) -> Any:
        """The answer of the first member that gives one; None when none did before the deadline of the loop's clock."""
        loop = asyncio.get_running_loop()
        while (left := deadline - loop.time()) > 0:
            answer = await self.once(method, request, min(CALL_S, left))
            if answer is not None:
                return answer
            await asyncio.sleep(min(PAUSE_S, max(0.0, deadline - loop.time())))
        return None

    async def once(self, method: Callable[[Line], Any], request: Any, timeout_s: float) -> Any:
        """The answer of the member in use; None when it did not come, and whether it was done is not known."""
        member, line = self.current()
        try:
            return await method(line)(request, timeout=timeout_s)
        except rpc.AioRpcError as error:
            if error.code() not in _NOT_THERE:
                raise
            log.debug("a member of etcd does not answer", member=member, error=error.details())
            self.leave(member)
            return None

    async def close(self) -> None:
        """Let go of every member."""
        lines, self._open = list(self._open.values()), {}
        for line in lines:
            await line.channel.close(grace=None)
