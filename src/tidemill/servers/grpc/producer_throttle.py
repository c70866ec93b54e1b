"""Throttles producers over gRPC whose requests mostly fail by their own fault, with the counts of the Kafka listener.

A producer is a user and a connection, so no other producer waits for it. After a failure that is throttled, its calls
are rejected before any work is done, with the time after which to try again. A client that does not wait gets its next
rejections only when that time is over. So a client that calls in a loop cannot make the broker busy with rejections.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidemill.model.errors import TidemillError
from tidemill.security.core.failing_producers import FAILING_PRODUCERS_MAX, OWN_ERRORS, FailingProducers, ProducerKey
from tidemill.servers.grpc.call import GrpcCall

HELD_MAX = 10
"""Calls of one producer that wait for their rejection; further ones are rejected at once."""
MS_PER_S = 1_000

T = TypeVar("T")


class ProducerThrottle:
    """Admits the calls of producers of one service. `rejection` makes the error of a call that is not admitted."""

    def __init__(self, failing: FailingProducers, rejection: Callable[[str], TidemillError]) -> None:
        self._failing = failing
        self._rejection = rejection
        self._held: Counter[ProducerKey] = Counter()
        self._rejected: set[ProducerKey] = set()

    async def watched(
        self, call: GrpcCall, work: Callable[[], Awaitable[T]], has_failed: Callable[[T], bool] = lambda _: False
    ) -> T:
        """The result of the call, if its producer is admitted. `has_failed`: whether the result is only failures."""
        if call.is_forwarded:  # the broker that forwards a call throttles its client
            return await work()
        key = str(call.caller.principal), call.peer
        await self._admit(key)
        try:
            result = await work()
        except OWN_ERRORS:
            self._record(key, has_failed=True)
            raise
        self._record(key, has_failed=has_failed(result))
        return result

    def _record(self, key: ProducerKey, *, has_failed: bool) -> None:
        if has_failed or self._failing.is_watching:
            self._failing.record(*key, asyncio.get_running_loop().time(), has_failed=has_failed)

    async def _admit(self, key: ProducerKey) -> None:
        if not self._failing.is_watching:
            self._rejected.clear()
            return
        wait_s = self._failing.delay(*key, asyncio.get_running_loop().time())
        if wait_s <= 0:
            self._rejected.discard(key)
            return
        self._failing.throttled += 1
        if key in self._rejected and self._held[key] < HELD_MAX:
            self._held[key] += 1
            try:
                await asyncio.sleep(wait_s)
            finally:
                self._held[key] -= 1
                if not self._held[key]:
                    del self._held[key]
        if len(self._rejected) >= FAILING_PRODUCERS_MAX:
            self._rejected.clear()
        self._rejected.add(key)
        wait_ms = max(1, round(wait_s * MS_PER_S))
        error = self._rejection(f"most requests of this producer fail; correct them, and try again in {wait_ms} ms")
        error.retry_after_ms = wait_ms
        raise error
