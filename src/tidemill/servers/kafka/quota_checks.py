"""The quotas that a handler checks itself: fetched bytes, before they are read, and changes of topics (KIP-599)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidemill.model.errors import ThrottlingQuotaExceeded, TidemillError
from tidemill.security.core.quotas import QuotaKind
from tidemill.servers.kafka.api import Call


class FetchQuota:
    """The fetch quota of the client that sent a request."""

    __slots__ = ("_call", "_client", "_throttle")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._throttle = call.broker.security.throttle
        self._client = call.principal.name, call.client_id

    @classmethod
    def of(cls, call: Call) -> "FetchQuota | None":
        """The quota; None for a broker, and where no client has one."""
        throttle = call.broker.security.throttle
        if not throttle.is_enabled or call.peer is not None or not throttle.table.limits(QuotaKind.FETCH):
            return None
        return cls(call)

    def must_wait(self) -> bool:
        """Whether the client must wait before anything is read for it."""
        wait_s = self._throttle.delay(QuotaKind.FETCH, *self._client, self._call.now_s())
        self._call.throttle(wait_s)
        return wait_s > 0

    def admits(self, size: int) -> bool:
        """Whether records of this size may be sent now; they count as sent."""
        wait_s = self._throttle.offer(QuotaKind.FETCH, *self._client, size, self._call.now_s())
        self._call.throttle(wait_s)
        return wait_s <= 0

    def limited(self, max_bytes: int) -> int:
        """The most bytes to read: a larger response could never be sent."""
        burst = self._throttle.burst(QuotaKind.FETCH, *self._client)
        return max_bytes if burst is None else min(max_bytes, burst)


class MutationQuota:
    """The quota of topic changes of the client that sent a request.

    A change is counted before it is made, so that requests that run at the same time cannot exceed the quota together,
    and taken back if it fails. A client that knows THROTTLING_QUOTA_EXCEEDED gets this error. For older ones the change
    is made, and the next request waits.
    """

    __slots__ = ("_call", "_client", "_is_limited", "_is_strict", "_throttle")

    def __init__(self, call: Call, *, is_strict: bool) -> None:
        self._call = call
        self._is_strict = is_strict
        self._throttle = call.broker.security.throttle
        self._is_limited = (
            self._throttle.is_enabled and call.peer is None and self._throttle.table.limits(QuotaKind.MUTATION)
        )
        self._client = call.principal.name, call.client_id

    @asynccontextmanager
    async def spend(self, partitions: int) -> AsyncIterator[None]:
        """Around a change of so many partitions; 0 for a change that is only checked."""
        if not self._is_limited or not partitions:
            yield
            return
        self._check()
        self._throttle.spend(QuotaKind.MUTATION, *self._client, partitions, self._call.now_s())
        try:
            yield
        except TidemillError:
            self._throttle.spend(QuotaKind.MUTATION, *self._client, -partitions, self._call.now_s())
            raise

    def _check(self) -> None:
        wait_s = self._throttle.delay(QuotaKind.MUTATION, *self._client, self._call.now_s())
        if not wait_s:
            return
        if not self._call.wait_s:
            self._throttle.count_wait(QuotaKind.MUTATION, wait_s)
        self._call.throttle(wait_s)
        if self._is_strict:
            raise ThrottlingQuotaExceeded(
                f"the quota of topic changes is used up; try again in {wait_s:.1f} s, see: tidemill quota list"
            )
