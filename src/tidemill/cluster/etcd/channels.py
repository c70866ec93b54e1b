"""Channels to the members of etcd: one is in use, and the next is tried when it does not answer.

Where etcd wants to know who asks, a channel is given a token for user and password before its first call; a token that
etcd has forgotten is asked for anew.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from aetcd import rpc
from grpc import ssl_channel_credentials

from tidemill.cluster.etcd.url import EtcdUrl

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
    ("grpc.enable_http_proxy", 0),  # the way to the web is not the way to etcd
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
_STALE_TOKEN = ("invalid auth token", "user name is empty", "revision of auth store is old")
"""How etcd says that it does not know a token any more."""
_TLS_TROUBLE = ("handshake", "certificate", "ssl")

log = structlog.get_logger("tidemill.cluster")


class EtcdChannel:
    """A channel to a member, and what can be called on it: made once, for each costs as much as a call."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.keys = rpc.KVStub(channel)
        self.leases = rpc.LeaseStub(channel)
        self.watches = rpc.WatchStub(channel)
        self.users = rpc.AuthStub(channel)
        self.login: tuple[tuple[str, str], ...] | None = None
        """What every call carries; None when etcd has to be asked for it."""


class Channels:
    """The members of one etcd, of which one is asked."""

    def __init__(self, url: EtcdUrl) -> None:
        self.members = url.members
        self.trouble = ""
        """Why no member can be talked to, when it is the certificates."""
        self._url = url
        self._at = 0
        self._open: dict[str, EtcdChannel] = {}

    async def current(self, timeout_s: float = CALL_S) -> tuple[str, "EtcdChannel"]:
        """The member in use and the line to it, on which we are known; an AioRpcError when etcd does not let us in."""
        member = self.members[self._at % len(self.members)]
        line = self._open.get(member)
        if line is None:
            line = self._open[member] = EtcdChannel(self._channel(member))
        if line.login is None:
            line.login = await self._log_in(member, line, timeout_s)
        return member, line

    def leave(self, member: str) -> None:
        """This member did not answer: the next one is asked from now on."""
        if self.members[self._at % len(self.members)] == member:
            self._at += 1

    def failed(self, error: rpc.AioRpcError) -> None:
        """A call to the member in use failed: it is asked who we are again, or the next member is asked."""
        member = self.members[self._at % len(self.members)]
        if self._is_stale(error.details()):
            self.forget_login(member)
        else:
            self.leave(member)

    def forget_login(self, member: str) -> None:
        """etcd does not know our token any more."""
        line = self._open.get(member)
        if line is not None:
            line.login = None

    def _is_stale(self, details: str | None) -> bool:
        return bool(self._url.user) and any(each in (details or "") for each in _STALE_TOKEN)

    def _channel(self, member: str) -> Any:
        tls = self._url.tls
        if tls is None:
            return rpc.insecure_channel(member, options=OPTIONS)
        ca, key, cert = (None if path is None else path.read_bytes() for path in (tls.ca, tls.key, tls.cert))
        return rpc.secure_channel(member, ssl_channel_credentials(ca, key, cert), options=OPTIONS)

    async def _log_in(self, member: str, line: EtcdChannel, timeout_s: float) -> tuple[tuple[str, str], ...]:
        if not self._url.user:
            return ()
        request = rpc.AuthenticateRequest(name=self._url.user, password=self._url.password)
        try:
            answer = await line.users.Authenticate(request, timeout=timeout_s)
        except rpc.AioRpcError as error:
            if error.code() in _NOT_THERE:
                self._note(member, error)
            raise
        return (("token", answer.token),)

    def _note(self, member: str, error: rpc.AioRpcError) -> None:
        details = error.details() or ""
        log.debug("a member of etcd does not answer", member=member, error=details)
        if self._url.tls is not None and any(each in details.lower() for each in _TLS_TROUBLE):
            self.trouble = f": TLS with {member} failed; are ca, cert and key right?"

    async def call(self, method: Callable[[EtcdChannel], Any], request: Any, deadline: float) -> Any:
        """The answer of the first member that gives one; None when none did before the deadline of the loop's clock."""
        loop = asyncio.get_running_loop()
        while (left := deadline - loop.time()) > 0:
            answer = await self.once(method, request, min(CALL_S, left))
            if answer is not None:
                return answer
            await asyncio.sleep(min(PAUSE_S, max(0.0, deadline - loop.time())))
        return None

    async def once(self, method: Callable[[EtcdChannel], Any], request: Any, timeout_s: float) -> Any:
        """The answer of the member in use; None when it did not come, and whether it was done is not known."""
        member = self.members[self._at % len(self.members)]
        try:
            _, line = await self.current(timeout_s)
            return await method(line)(request, timeout=timeout_s, metadata=line.login)
        except rpc.AioRpcError as error:
            if self._is_stale(error.details()):
                self.forget_login(member)
                return None
            if error.code() not in _NOT_THERE:
                raise
            self._note(member, error)
            self.leave(member)
            return None

    async def close(self) -> None:
        """Let go of every member."""
        lines, self._open = list(self._open.values()), {}
        for line in lines:
            await line.channel.close(grace=None)
