"""The leader's side of replication for one leader epoch: proposes in-sync sets and releases waiting producers.

`core.insync` decides. The leader proposes another in-sync set as soon as a follower may join, or when `tick` finds a
follower that lags. One proposal is in flight at a time. A proposal that failed, or whose outcome is unknown, stays
counted (`InSync.counted`) and is retried soon after. A lost proposal must not block the high watermark permanently.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import structlog

from tidemill.model.errors import (
    KafkaError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    TidemillError,
)
from tidemill.streams.commit_waiters import CommitWaiters
from tidemill.streams.core.insync import InSync, Lag, Term

RETRY_MS = 200.0
LAG_MAX_MS = 30_000.0
LOGGER = structlog.get_logger(__name__)

Propose = Callable[[Term, tuple[int, ...]], Awaitable[Term]]


class Agreement(NamedTuple):
    """How a leader changes the in-sync set: the proposal call, the maximum lag, and which brokers are in the cluster.

    `propose` returns the new term or raises an error.
    """

    propose: Propose
    lag_max_ms: float = LAG_MAX_MS
    present: Callable[[int], bool] = lambda _: True


class LeaderReplication:
    """The replication state of a leader that has followers."""

    def __init__(
        self,
        insync: InSync,
        agreement: Agreement,
        *,
        min_insync: Callable[[], int],
        own_offset: Callable[[], int],
        on_commit: Callable[[], None],
    ) -> None:
        self._insync = insync
        self._agreement = agreement
        self._min_insync = min_insync
        self._own_offset = own_offset
        self._on_commit = on_commit
        self._commits = CommitWaiters()
        self._proposing: asyncio.Task[None] | None = None
        self._not_before_ms = 0.0
        self._over = False

    @property
    def term(self) -> Term:
        """The term that coordination agreed on last."""
        return self._insync.term

    @property
    def high_watermark(self) -> int:
        """The offset below which everything is committed."""
        return self._insync.high_watermark

    @property
    def start_offset(self) -> int:
        """The end offset of the log when this epoch started."""
        return self._insync.start_offset

    def lags(self, end_offset: int) -> dict[int, Lag]:
        """Return how far each follower is behind the end of the log."""
        return self._insync.lags(end_offset, _now_ms())

    def check_enough(self) -> None:
        """Raise NotEnoughReplicas when acks=all cannot be satisfied now."""
        if not self._insync.enough(self._min_insync()):
            raise NotEnoughReplicas(self._shortage())

    async def committed(self, offset: int, timeout_s: float | None) -> None:
        """Return when everything before `offset` is on all in-sync replicas."""
        if offset <= self._insync.high_watermark:
            return
        if self._over:
            raise NotLeaderOrFollower("another broker leads this partition now; refresh the metadata and retry")
        if not self._insync.enough(self._min_insync()):
            raise NotEnoughReplicasAfterAppend(self._shortage())
        await self._commits.reach(offset, timeout_s)

    def learn(self, term: Term) -> None:
        """Apply a changed in-sync set."""
        if self._over or not self._insync.learn(term, _now_ms()):
            return
        if not self._insync.enough(self._min_insync()):
            self._commits.fail(NotEnoughReplicasAfterAppend(self._shortage()))
        self.advance()

    def fetched(self, node: int, offset: int, end_offset: int) -> None:
        """Record that a follower has everything before `offset`."""
        self._insync.fetched(node, offset, end_offset, _now_ms())
        self.advance()
        if node not in self._insync.term.isr:
            self.tick()

    def advance(self) -> None:
        """Advance the high watermark as far as the in-sync replicas allow."""
        before = self._insync.high_watermark
        after = self._insync.advance(self._own_offset(), self._min_insync())
        if after > before:
            self._on_commit()
            self._commits.advance(after)

    def tick(self) -> None:
        """Propose the desired in-sync set if it differs from the current one and no proposal is in flight."""
        now_ms = _now_ms()
        if self._proposing is not None or self._over or now_ms < self._not_before_ms:
            return
        isr = self._insync.wanted(now_ms, self._agreement.lag_max_ms, self._agreement.present)
        if isr is None:
            return
        self._insync.propose(isr)
        self._proposing = asyncio.get_running_loop().create_task(self._propose(isr))

    async def end(self, error: KafkaError) -> None:
        """End the epoch and fail every waiter."""
        self.stop(error)
        if self._proposing is not None:
            self._proposing.cancel()
            await asyncio.wait([self._proposing])

    def stop(self, error: KafkaError) -> None:
        """Acknowledge nothing from now on."""
        self._over = True
        self._commits.fail(error)

    async def _propose(self, isr: tuple[int, ...]) -> None:
        try:
            term = await self._agreement.propose(self._insync.term, isr)
        except TidemillError as error:
            LOGGER.info("isr_change_rejected", isr=isr, error=str(error))
            self._not_before_ms = _now_ms() + RETRY_MS
            return
        except Exception:
            LOGGER.exception("isr_change_failed", isr=isr)
            self._not_before_ms = _now_ms() + RETRY_MS
            return
        finally:
            self._proposing = None
        self.learn(term)

    def _shortage(self) -> str:
        return f"{len(self._insync.term.isr)} replicas are in sync, min.insync.replicas is {self._min_insync()}"


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
