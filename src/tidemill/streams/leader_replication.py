"""The leader's side of replication, for one epoch: `core.insync` decides, this asks coordination and lets waiters go.

A proposal for another in-sync set is made as soon as a follower may enter, or when `tick` finds one that lags. One is
under way at a time. One that fails, or whose outcome is not known, stays counted (`InSync.counted`) and is made again
a moment later: a proposal that is lost must not hold the high watermark for ever.
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
    """How a leader has the in-sync set changed (the new term, or an error), who lags, and who is in the cluster."""

    propose: Propose
    lag_max_ms: float = LAG_MAX_MS
    present: Callable[[int], bool] = lambda _: True


class LeaderReplication:
    """A leader that has followers."""

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
        """What was agreed last."""
        return self._insync.term

    @property
    def high_watermark(self) -> int:
        """Everything before is committed."""
        return self._insync.high_watermark

    @property
    def start_offset(self) -> int:
        """Where the log ended when this epoch began."""
        return self._insync.start_offset

    def lags(self, end_offset: int) -> dict[int, Lag]:
        """How far every follower is behind the end of the log."""
        return self._insync.lags(end_offset, _now_ms())

    def check_enough(self) -> None:
        """NotEnoughReplicas when acks=all cannot be kept now."""
        if not self._insync.enough(self._min_insync()):
            raise NotEnoughReplicas(self._shortage())

    async def committed(self, offset: int, timeout_s: float | None) -> None:
        """Return when everything before `offset` is on all replicas in sync."""
        if offset <= self._insync.high_watermark:
            return
        if self._over:
            raise NotLeaderOrFollower("another broker leads this partition now")
        if not self._insync.enough(self._min_insync()):
            raise NotEnoughReplicasAfterAppend(self._shortage())
        await self._commits.reach(offset, timeout_s)

    def learn(self, term: Term) -> None:
        """The in-sync set was changed."""
        if self._over or not self._insync.learn(term, _now_ms()):
            return
        if not self._insync.enough(self._min_insync()):
            self._commits.fail(NotEnoughReplicasAfterAppend(self._shortage()))
        self.advance()

    def fetched(self, node: int, offset: int, end_offset: int) -> None:
        """A follower has everything before `offset`."""
        self._insync.fetched(node, offset, end_offset, _now_ms())
        self.advance()
        if node not in self._insync.term.isr:
            self.tick()

    def advance(self) -> None:
        """Move the high watermark as far as it may go."""
        before = self._insync.high_watermark
        after = self._insync.advance(self._own_offset(), self._min_insync())
        if after > before:
            self._on_commit()
            self._commits.advance(after)

    def tick(self) -> None:
        """Propose the in-sync set that should be, if it is another and no proposal is under way."""
        now_ms = _now_ms()
        if self._proposing is not None or self._over or now_ms < self._not_before_ms:
            return
        isr = self._insync.wanted(now_ms, self._agreement.lag_max_ms, self._agreement.present)
        if isr is None:
            return
        self._insync.propose(isr)
        self._proposing = asyncio.get_running_loop().create_task(self._propose(isr))

    async def end(self, error: KafkaError) -> None:
        """The epoch is over: nobody waits here any more."""
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
            LOGGER.info("a proposed in-sync set was not taken", isr=isr, error=str(error))
            self._not_before_ms = _now_ms() + RETRY_MS
            return
        except Exception:
            LOGGER.exception("an in-sync set could not be proposed", isr=isr)
            self._not_before_ms = _now_ms() + RETRY_MS
            return
        finally:
            self._proposing = None
        self.learn(term)

    def _shortage(self) -> str:
        return f"{len(self._insync.term.isr)} replicas are in sync, min.insync.replicas is {self._min_insync()}"


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
