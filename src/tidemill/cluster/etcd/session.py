"""A session on etcd: a lease that is renewed, and a local deadline that ends the session first.

etcd may keep a lease longer than its TTL (during a change of its leader), so an existing key does not prove that the
session is alive. The local monotonic clock decides. The session ends a margin before the TTL has passed since the last
answered renewal was *sent*. A session that has ended never becomes alive again.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import structlog
from aetcd import rpc

from tidemill.cluster.etcd.channels import Channels
from tidemill.cluster.interface import CoordinationAway

RENEWALS = 6
"""The number of renewals within one TTL."""
MARGIN_SHARE = 4
"""A session ends here when a quarter of its TTL is left, a margin for the clocks of other brokers."""

log = structlog.get_logger("tidemill.cluster")


class EtcdSession:
    """The liveness of this broker."""

    def __init__(self, channels: Channels, ttl_ms: int, clock: Callable[[], float]) -> None:
        self.lease_id = 0
        self._channels = channels
        self._ttl_s = ttl_ms / 1000
        self._clock = clock
        self._until = 0.0
        self._ended = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether this broker may still act as a member."""
        return not self._ended.is_set() and self._clock() < self._until

    async def ended(self) -> None:
        """Wait until the session has ended."""
        await self._ended.wait()

    async def begin(self, deadline: float) -> None:
        """Take a lease and start to renew it."""
        sent = self._clock()
        request = rpc.LeaseGrantRequest(TTL=math.ceil(self._ttl_s))
        answer = await self._channels.call(lambda channel: channel.leases.LeaseGrant, request, deadline)
        if answer is None:
            raise CoordinationAway(
                f"etcd at {','.join(self._channels.members)} does not answer{self._channels.trouble}"
            )
        self.lease_id = answer.ID
        self._extend(sent)
        self._renewing = asyncio.create_task(self._renew_for_ever())

    async def end(self) -> None:
        """Revoke the lease, so that others do not have to wait until it expires."""
        self._ended.set()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        try:
            request = rpc.LeaseRevokeRequest(ID=self.lease_id)
            await self._channels.once(lambda channel: channel.leases.LeaseRevoke, request, 1.0)
        except rpc.AioRpcError:
            log.debug("session_already_ended")

    def _extend(self, sent: float) -> None:
        self._until = max(self._until, sent + self._ttl_s - self._ttl_s / MARGIN_SHARE)

    async def _renew_for_ever(self) -> None:
        interval = self._ttl_s / RENEWALS
        while self._clock() < self._until:
            sent = self._clock()
            if await self._renew_once(min(interval * 2, self._until - sent)):
                # A paused process resumes here too late. A session that has ended stays ended.
                if self._clock() >= self._until:
                    break
                self._extend(sent)
                await asyncio.sleep(max(0.0, min(sent + interval, self._until) - self._clock()))
            else:
                await asyncio.sleep(max(0.0, min(interval / 2, self._until - self._clock())))
        self._ended.set()
        log.warning("session_expired", ttl_s=self._ttl_s)

    async def _renew_once(self, timeout_s: float) -> bool:
        try:
            _, channel = await self._channels.current(timeout_s)
            request = rpc.LeaseKeepAliveRequest(ID=self.lease_id)
            call = channel.leases.LeaseKeepAlive(_one(request), timeout=timeout_s, metadata=channel.login)
            async for answer in call:
                if answer.TTL <= 0:
                    self._until = 0.0  # etcd has dropped the lease: other brokers may already act
                    return False
                return True
        except rpc.AioRpcError as error:
            self._channels.failed(error)
        except Exception:  # a failed renewal is retried until the session has ended, whatever the reason
            log.exception("session_renewal_failed")
        return False


async def _one(request: Any) -> Any:
    yield request
