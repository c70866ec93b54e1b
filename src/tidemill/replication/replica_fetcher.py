"""Replica fetchers: copy partitions from their leaders, with one fetcher per leader for all partitions that it leads.

In each round every partition reports its flushed end offset, one Fetch request asks for the records after it, and every
partition appends its part of the response. The leader responds at once when it has records and otherwise waits, so an
idle cluster costs little. When the leader rejects a partition (its image or ours is behind), that partition backs off
and the others continue. When the leader cannot be reached, the fetcher retries with a growing backoff.

When partitions are added, the fetcher abandons the Fetch that waits at the leader and sends a new one that includes
them. Otherwise an idle partition would delay a change of leaders.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

import structlog

from tidemill.client.kafka.errors import AuthenticationFailed
from tidemill.client.kafka.replica_fetch import PartGiven, PartWanted
from tidemill.model.errors import OffsetOutOfRange, TidemillError, of_code
from tidemill.streams.core.follower import Diverged, OutOfRange, Question
from tidemill.streams.follower_log import Copied
from tidemill.streams.partition import Partition
from tidemill.supervision.supervisor import Supervisor
from tidemill.tracing.record_tracer import RecordTracer

PAUSE_S = 0.05
PAUSE_MAX_S = 1.0
ABANDON_S = 0.01
"""How long a pending Fetch may still take before it is abandoned because partitions were added."""
FETCH_BYTES = 1024 * 1024

log = structlog.get_logger("tidemill.replicas")


class Copy(NamedTuple):
    """A partition that this broker copies."""

    topic_id: UUID
    partition: Partition

    @property
    def key(self) -> tuple[UUID, int]:
        """Identifies the partition in requests and responses."""
        return self.topic_id, self.partition.index


class Link(Protocol):
    """A connection to one leader."""

    async def fetch(self, wanted: Sequence[PartWanted]) -> Sequence[PartGiven]:
        """Fetch from the leader; a TidemillError or OSError when it cannot be reached."""

    def close(self) -> None:
        """Close the connection."""


Connect = Callable[[int], Awaitable[Link]]


class _Backoff:
    """A pause that doubles with every failure and is reset by a success."""

    __slots__ = ("length_s", "until")

    def __init__(self) -> None:
        self.length_s = 0.0
        self.until = 0.0

    def begin(self, now: float) -> None:
        self.length_s = min(max(self.length_s * 2, PAUSE_S), PAUSE_MAX_S)
        self.until = now + self.length_s

    def end(self) -> None:
        self.length_s = self.until = 0.0


class Fetcher:
    """Copies from one leader."""

    def __init__(
        self,
        leader: int,
        connect: Connect,
        fetch_bytes: int,
        supervisor: Supervisor,
        *,
        tracer: RecordTracer | None = None,
    ) -> None:
        self._leader = leader
        self._tracer = tracer
        self._connect = connect
        self._fetch_bytes = fetch_bytes
        self._copies: dict[tuple[UUID, int], Copy] = {}
        self._backoffs: dict[tuple[UUID, int], _Backoff] = {}
        self._link: Link | None = None
        self._link_backoff = _Backoff()
        self._added = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = supervisor.keep("replica fetcher", self._run, about=f"leader {leader}")

    @property
    def idle(self) -> bool:
        """Whether there is nothing to copy."""
        return not self._copies

    def add(self, copy: Copy) -> None:
        """Start to copy this partition."""
        self._copies[copy.key] = copy
        self._backoffs[copy.key] = _Backoff()
        self._added.set()

    def remove(self, key: tuple[UUID, int]) -> None:
        """Stop copying this partition."""
        self._copies.pop(key, None)
        self._backoffs.pop(key, None)

    async def close(self) -> None:
        """Stop; the partitions finish the appends that have started."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._unlink()

    async def _run(self) -> None:
        self._unlink()  # after an unexpected error: data left on the connection belongs to an earlier request
        while True:
            self._added.clear()
            try:
                await self._round()
            except (TidemillError, OSError, TimeoutError) as error:
                self._unlink()
                if not self._link_backoff.length_s:  # log each outage once
                    report = log.error if isinstance(error, AuthenticationFailed) else log.info
                    report("leader_unreachable", leader=self._leader, error=str(error))
                self._link_backoff.begin(self._loop.time())
                await asyncio.sleep(self._link_backoff.length_s)

    async def _round(self) -> None:
        asked = await self._questions()
        if not asked:
            await self._wait_for_copies(self._next_backoff_s())
            return
        if self._link is None:
            self._link = await self._connect(self._leader)
        wanted = [
            PartWanted(
                copy.topic_id,
                copy.partition.index,
                question.epoch,
                question.offset,
                question.last_epoch,
                copy.partition.log_start_offset,
                self._fetch_bytes,
            )
            for copy, question in asked.values()
        ]
        answer = await self._ask(self._link, wanted)
        if answer is None:
            self._unlink()
            return
        self._link_backoff.end()
        given = [part for part in answer if (part.topic_id, part.partition) in asked]
        await asyncio.gather(*(self._take(*asked[part.topic_id, part.partition], part) for part in given))
        self._rotate([(part.topic_id, part.partition) for part in given if part.records])

    def _rotate(self, served: Sequence[tuple[UUID, int]]) -> None:
        """Move partitions that received records to the end, because the size of a response is limited."""
        for key in served:
            copy = self._copies.pop(key, None)
            if copy is not None:
                self._copies[key] = copy

    async def _questions(self) -> dict[tuple[UUID, int], tuple[Copy, Question]]:
        """The next request of every partition that does not back off; each has flushed its log first."""
        now = self._loop.time()
        copies = [copy for key, copy in self._copies.items() if self._backoffs[key].until <= now]
        questions = await asyncio.gather(*(self._question(copy) for copy in copies))
        return {
            copy.key: (copy, question)
            for copy, question in zip(copies, questions, strict=True)
            if question is not None and question.leader == self._leader
        }

    async def _question(self, copy: Copy) -> Question | None:
        try:
            return await copy.partition.follower.ask()
        except TidemillError as error:
            self._refuse(copy, error)
            return None

    async def _ask(self, link: Link, wanted: Sequence[PartWanted]) -> Sequence[PartGiven] | None:
        """The response; None when partitions were added that the request does not contain."""
        answering = self._loop.create_task(link.fetch(wanted))
        added = self._loop.create_task(self._added.wait())
        try:
            await asyncio.wait([answering, added], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                await asyncio.wait([answering], timeout=ABANDON_S)
            return await answering if answering.done() else None
        finally:
            for task in (answering, added):
                task.cancel()
            await asyncio.gather(answering, added, return_exceptions=True)

    async def _take(self, copy: Copy, question: Question, part: PartGiven) -> None:
        start = part.log_start_offset
        answer: Copied | Diverged | OutOfRange
        if part.error_code == OffsetOutOfRange.code:
            answer = OutOfRange(start)
        elif part.error_code:
            self._refuse(copy, of_code(part.error_code))
            return
        elif part.diverging is not None:
            answer = Diverged(*part.diverging)
        else:
            answer = Copied(part.records, part.high_watermark)
        try:
            await self._store(copy, question, answer, start)
        except (TidemillError, OSError) as error:
            log.warning("replica_append_failed", partition=_name(copy), error=str(error))
            self._refuse(copy, error)
            return
        backoff = self._backoffs.get(copy.key)
        if backoff is not None:
            backoff.end()

    async def _store(self, copy: Copy, question: Question, answer: Copied | Diverged | OutOfRange, start: int) -> None:
        partition, tracer = copy.partition, self._tracer
        if tracer is None or not isinstance(answer, Copied):
            await partition.follower.take(question, answer, start)
            return
        started_ns = tracer.now_ns()
        await partition.follower.take(question, answer, start)
        tracer.replicated(
            partition.topic, partition.index, answer.records, partition.log_end_offset, started_ns, self._leader
        )

    def _refuse(self, copy: Copy, error: BaseException) -> None:
        backoff = self._backoffs.get(copy.key)
        if backoff is not None:
            backoff.begin(self._loop.time())
            log.debug("replica_fetch_backoff", partition=_name(copy), leader=self._leader, error=str(error))

    def _next_backoff_s(self) -> float:
        now = self._loop.time()
        pauses = [backoff.until - now for backoff in self._backoffs.values() if backoff.until > now]
        return min(pauses, default=PAUSE_MAX_S)

    async def _wait_for_copies(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._added.wait()
        except TimeoutError:
            return

    def _unlink(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


def _name(copy: Copy) -> str:
    return f"{copy.partition.topic}-{copy.partition.index}"


class ReplicaFetchers:
    """The fetchers of this broker, one for each leader that it copies from."""

    def __init__(
        self,
        connect: Connect,
        fetch_bytes: int = FETCH_BYTES,
        supervisor: Supervisor | None = None,
        *,
        tracer: RecordTracer | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor()
        self._tracer = tracer
        self._connect = connect
        self._fetch_bytes = fetch_bytes
        self._fetchers: dict[int, Fetcher] = {}
        self._leaders: dict[tuple[UUID, int], int] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, copy: Copy, leader: int) -> None:
        """Copy this partition from this leader only."""
        if self._leaders.get(copy.key) == leader:
            return
        self.drop(copy.key)
        self._leaders[copy.key] = leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(
                leader, self._connect, self._fetch_bytes, self._supervisor, tracer=self._tracer
            )
        fetcher.add(copy)

    def drop(self, key: tuple[UUID, int]) -> None:
        """Stop copying this partition."""
        leader = self._leaders.pop(key, None)
        if leader is None:
            return
        self._fetchers[leader].remove(key)
        if self._fetchers[leader].idle:
            task = self._supervisor.spawn("replica fetcher stop", self._fetchers.pop(leader).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Stop all fetchers."""
        self._leaders.clear()
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers), *self._closing)
