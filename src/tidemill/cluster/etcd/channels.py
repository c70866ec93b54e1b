"""gRPC channels to the members of etcd. One member is in use, and the next is tried when it does not answer.

When etcd requires authentication, a channel gets a token for user and password before its first call. When etcd no
longer accepts the token, the channel requests a new one.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog
from aetcd import rpc
from grpc import ssl_channel_credentials

from tidemill.cluster.etcd.url import EtcdUrl
from tidemill.model.metrics import NetworkTraffic

CALL_S = 2.0
"""The timeout of one call to one member."""
PAUSE_S = 0.1
"""The pause between two tries."""
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A member that restarted is a new connection, and must not inherit the backoff of the last one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # a proxy for the web does not lead to etcd
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
"""Errors after which another member, or the same one later, may answer."""
_STALE_TOKEN = ("invalid auth token", "user name is empty", "revision of auth store is old")
"""How etcd reports that it does not know a token any more."""
_TLS_TROUBLE = ("handshake", "certificate", "ssl")

log = structlog.get_logger("tidemill.cluster")


class EtcdChannel:
    """A channel to a member with its stubs, which are created once because each costs as much as a call."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.keys = rpc.KVStub(channel)
        self.leases = rpc.LeaseStub(channel)
        self.watches = rpc.WatchStub(channel)
        self.users = rpc.AuthStub(channel)
        self.login: tuple[tuple[str, str], ...] | None = None
        """The metadata of every call; None when a token must be requested first."""


class Channels:
    """The members of one etcd cluster, of which one is in use."""

    def __init__(self, url: EtcdUrl, traffic: NetworkTraffic | None = None) -> None:
        self.members = url.members
        self.traffic = traffic or NetworkTraffic()
        self.trouble = ""
        """The reason that no member can be reached, when it is TLS."""
        self._url = url
        self._at = 0
        self._open: dict[str, EtcdChannel] = {}

    async def current(self, timeout_s: float = CALL_S) -> tuple[str, "EtcdChannel"]:
        """The member in use and its authenticated channel; an AioRpcError when etcd rejects the login."""
        member = self.members[self._at % len(self.members)]
        channel = self._open.get(member)
        if channel is None:
            channel = self._open[member] = EtcdChannel(self._channel(member))
        if channel.login is None:
            channel.login = await self._log_in(member, channel, timeout_s)
        return member, channel

    def leave(self, member: str) -> None:
        """Use the next member, because this one did not answer."""
        if self.members[self._at % len(self.members)] == member:
            self._at += 1

    def failed(self, error: rpc.AioRpcError) -> None:
        """After a failed call to the member in use: request a new token, or use the next member."""
        member = self.members[self._at % len(self.members)]
        if self._is_stale(error.details()):
            self.forget_login(member)
        else:
            self.leave(member)

    def forget_login(self, member: str) -> None:
        """Request a new token before the next call to this member."""
        channel = self._open.get(member)
        if channel is not None:
            channel.login = None

    def _is_stale(self, details: str | None) -> bool:
        return bool(self._url.user) and any(each in (details or "") for each in _STALE_TOKEN)

    def _channel(self, member: str) -> Any:
        tls = self._url.tls
        if tls is None:
            return rpc.insecure_channel(member, options=OPTIONS)
        ca, key, cert = (None if path is None else path.read_bytes() for path in (tls.ca, tls.key, tls.cert))
        return rpc.secure_channel(member, ssl_channel_credentials(ca, key, cert), options=OPTIONS)

    async def _log_in(self, member: str, channel: EtcdChannel, timeout_s: float) -> tuple[tuple[str, str], ...]:
        if not self._url.user:
            return ()
        request = rpc.AuthenticateRequest(name=self._url.user, password=self._url.password)
        try:
            answer = await channel.users.Authenticate(request, timeout=timeout_s)
        except rpc.AioRpcError as error:
            if error.code() in _NOT_THERE:
                self._note(member, error)
            raise
        return (("token", answer.token),)

    def _note(self, member: str, error: rpc.AioRpcError) -> None:
        details = error.details() or ""
        log.debug("etcd_member_unreachable", member=member, error=details)
        if self._url.tls is not None and any(each in details.lower() for each in _TLS_TROUBLE):
            self.trouble = f": TLS with {member} failed; check ca, cert and key in the etcd URL"

    async def call(self, method: Callable[[EtcdChannel], Any], request: Any, deadline: float) -> Any:
        """The answer of the first member that gives one; None when none did before the deadline (in loop time)."""
        loop = asyncio.get_running_loop()
        while (left := deadline - loop.time()) > 0:
            answer = await self.once(method, request, min(CALL_S, left))
            if answer is not None:
                return answer
            await asyncio.sleep(min(PAUSE_S, max(0.0, deadline - loop.time())))
        return None

    async def once(self, method: Callable[[EtcdChannel], Any], request: Any, timeout_s: float) -> Any:
        """The answer of the member in use; None when there was none, and the outcome of the call is unknown."""
        member = self.members[self._at % len(self.members)]
        try:
            _, channel = await self.current(timeout_s)
            began = time.perf_counter()
            answer = await method(channel)(request, timeout=timeout_s, metadata=channel.login)
        except rpc.AioRpcError as error:
            if self._is_stale(error.details()):
                self.forget_login(member)
                return None
            if error.code() not in _NOT_THERE:
                raise
            self._note(member, error)
            self.leave(member)
            return None
        self.traffic.latency.add(time.perf_counter() - began)
        self.traffic.bytes_out += request.ByteSize()
        self.traffic.bytes_in += answer.ByteSize()
        return answer

    async def close(self) -> None:
        """Close the channels to all members."""
        channels, self._open = list(self._open.values()), {}
        for channel in channels:
            await channel.channel.close(grace=None)
