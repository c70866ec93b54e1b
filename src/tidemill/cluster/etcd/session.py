"""A session on etcd: a lease that is renewed, and a clock of our own that ends it first.

etcd may keep a lease longer than its time (over a change of its leader), so that "my key is still there" proves
nothing. Our own monotonic clock decides: the session is over a margin before the time that was asked for has passed
since the last renewal that was answered, counted from when that renewal was *sent*. What is over stays over.
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
"""Renewals in the life of a session."""
MARGIN_SHARE = 4
"""A quarter of its life is left for the clocks of others when a session ends here."""

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
        """Wait until it is over."""
        await self._ended.wait()

    async def begin(self, deadline: float) -> None:
        """Take a lease and keep it."""
        sent = self._clock()
        request = rpc.LeaseGrantRequest(TTL=math.ceil(self._ttl_s))
        answer = await self._channels.call(lambda line: line.leases.LeaseGrant, request, deadline)
        if answer is None:
            raise CoordinationAway(
                f"etcd at {','.join(self._channels.members)} does not answer{self._channels.trouble}"
            )
        self.lease_id = answer.ID
        self._extend(sent)
        self._renewing = asyncio.create_task(self._renew_for_ever())

    async def end(self) -> None:
        """Give the lease back, so that others need not wait for its end."""
        self._ended.set()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        try:
            request = rpc.LeaseRevokeRequest(ID=self.lease_id)
            await self._channels.once(lambda line: line.leases.LeaseRevoke, request, 1.0)
        except rpc.AioRpcError:
            log.debug("the session had ended already")

    def _extend(self, sent: float) -> None:
        self._until = max(self._until, sent + self._ttl_s - self._ttl_s / MARGIN_SHARE)

    async def _renew_for_ever(self) -> None:
        interval = self._ttl_s / RENEWALS
        while self._clock() < self._until:
            sent = self._clock()
            if await self._renew_once(min(interval * 2, self._until - sent)):
                # A process that was stopped in between comes back here too late: what is over stays over.
                if self._clock() >= self._until:
                    break
                self._extend(sent)
                await asyncio.sleep(max(0.0, min(sent + interval, self._until) - self._clock()))
            else:
                await asyncio.sleep(max(0.0, min(interval / 2, self._until - self._clock())))
        self._ended.set()
        log.warning("the session has ended: etcd was not reached in time")

    async def _renew_once(self, timeout_s: float) -> bool:
        try:
            _, line = await self._channels.current(timeout_s)
            request = rpc.LeaseKeepAliveRequest(ID=self.lease_id)
            call = line.leases.LeaseKeepAlive(_one(request), timeout=timeout_s, metadata=line.login)
            async for answer in call:
                if answer.TTL <= 0:
                    self._until = 0.0  # etcd has forgotten the lease: others may act already
                    return False
                return True
        except rpc.AioRpcError as error:
            self._channels.failed(error)
        except Exception:  # a renewal that fails is tried again until the session is over, whatever the reason
            log.exception("a renewal of the session failed")
        return False


async def _one(request: Any) -> Any:
    yield request
