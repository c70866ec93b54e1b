"""How this broker copies what others lead: one fetcher for each leader, for all partitions that it leads.

A round: every partition says what it has (flushed), one Fetch asks for what follows, every partition takes in its
part. The leader answers at once when it has something, and otherwise waits a moment, so an idle cluster costs little.
A partition that the leader refuses (its image or ours is behind) rests a while; the others go on without it. A leader
that cannot be reached is asked again after a pause that grows. When partitions come, the question that waits at the
leader is given up and asked anew with them: a change of leaders is not held up by a quiet neighbour.
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

PAUSE_S = 0.05
PAUSE_MAX_S = 1.0
NEWS_S = 0.01
"""How long an answer that is on its way may take before new partitions have the question asked anew."""
FETCH_BYTES = 1024 * 1024

log = structlog.get_logger("tidemill.replicas")


class Copy(NamedTuple):
    """A partition that this broker copies."""

    topic_id: UUID
    partition: Partition

    @property
    def key(self) -> tuple[UUID, int]:
        """What it is known by in questions and answers."""
        return self.topic_id, self.partition.index


class Link(Protocol):
    """The way to one leader."""

    async def fetch(self, wanted: Sequence[PartWanted]) -> Sequence[PartGiven]:
        """What the leader gives; a TidemillError or OSError when it cannot be asked."""

    def close(self) -> None:
        """Let go of it."""


Connect = Callable[[int], Awaitable[Link]]


class _Rest:
    """A pause that grows while things go wrong, and is over when they go right."""

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

    def __init__(self, leader: int, connect: Connect, fetch_bytes: int, supervisor: Supervisor) -> None:
        self._leader = leader
        self._connect = connect
        self._fetch_bytes = fetch_bytes
        self._copies: dict[tuple[UUID, int], Copy] = {}
        self._rests: dict[tuple[UUID, int], _Rest] = {}
        self._link: Link | None = None
        self._link_rest = _Rest()
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = supervisor.keep("replica fetcher", self._run, about=f"leader {leader}")

    @property
    def idle(self) -> bool:
        """Whether there is nothing to copy."""
        return not self._copies

    def add(self, copy: Copy) -> None:
        """Copy this partition too."""
        self._copies[copy.key] = copy
        self._rests[copy.key] = _Rest()
        self._news.set()

    def remove(self, key: tuple[UUID, int]) -> None:
        """Copy this partition no more."""
        self._copies.pop(key, None)
        self._rests.pop(key, None)

    async def close(self) -> None:
        """Stop; what was begun is finished by the partitions."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._unlink()

    async def _run(self) -> None:
        self._unlink()  # after an unexpected error: what is left on the connection belongs to another question
        while True:
            self._news.clear()
            try:
                await self._round()
            except (TidemillError, OSError, TimeoutError) as error:
                self._unlink()
                if not self._link_rest.length_s:  # once for each outage
                    tell = log.error if isinstance(error, AuthenticationFailed) else log.info
                    tell("a leader cannot be asked", leader=self._leader, error=str(error))
                self._link_rest.begin(self._loop.time())
                await asyncio.sleep(self._link_rest.length_s)

    async def _round(self) -> None:
        asked = await self._questions()
        if not asked:
            await self._wait_for_news(self._next_rest_s())
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
        self._link_rest.end()
        given = [part for part in answer if (part.topic_id, part.partition) in asked]
        await asyncio.gather(*(self._take(*asked[part.topic_id, part.partition], part) for part in given))
        self._rotate([(part.topic_id, part.partition) for part in given if part.records])

    def _rotate(self, served: Sequence[tuple[UUID, int]]) -> None:
        """Who was given records asks last next time: an answer has room for so many bytes only."""
        for key in served:
            copy = self._copies.pop(key, None)
            if copy is not None:
                self._copies[key] = copy

    async def _questions(self) -> dict[tuple[UUID, int], tuple[Copy, Question]]:
        """What every partition asks that does not rest; each has flushed what it has."""
        now = self._loop.time()
        copies = [copy for key, copy in self._copies.items() if self._rests[key].until <= now]
        questions = await asyncio.gather(*(self._question(copy) for copy in copies))
        return {
            copy.key: (copy, question)
            for copy, question in zip(copies, questions, strict=True)
            if question is not None and question.leader == self._leader
        }

    async def _question(self, copy: Copy) -> Question | None:
        try:
            return await copy.partition.ask()
        except TidemillError as error:
            self._refuse(copy, error)
            return None

    async def _ask(self, link: Link, wanted: Sequence[PartWanted]) -> Sequence[PartGiven] | None:
        """The answer; None when partitions have come that the question does not name."""
        answering = self._loop.create_task(link.fetch(wanted))
        news = self._loop.create_task(self._news.wait())
        try:
            await asyncio.wait([answering, news], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                await asyncio.wait([answering], timeout=NEWS_S)
            return await answering if answering.done() else None
        finally:
            for task in (answering, news):
                task.cancel()
            await asyncio.gather(answering, news, return_exceptions=True)

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
            await copy.partition.take(question, answer, start)
        except (TidemillError, OSError) as error:
            log.warning("a copied batch was not taken", partition=_name(copy), error=str(error))
            self._refuse(copy, error)
            return
        rest = self._rests.get(copy.key)
        if rest is not None:
            rest.end()

    def _refuse(self, copy: Copy, error: BaseException) -> None:
        rest = self._rests.get(copy.key)
        if rest is not None:
            rest.begin(self._loop.time())
            log.debug("a partition rests", partition=_name(copy), leader=self._leader, error=str(error))

    def _next_rest_s(self) -> float:
        now = self._loop.time()
        pauses = [rest.until - now for rest in self._rests.values() if rest.until > now]
        return min(pauses, default=PAUSE_MAX_S)

    async def _wait_for_news(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
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

    def __init__(self, connect: Connect, fetch_bytes: int = FETCH_BYTES, supervisor: Supervisor | None = None) -> None:
        self._supervisor = supervisor or Supervisor()
        self._connect = connect
        self._fetch_bytes = fetch_bytes
        self._fetchers: dict[int, Fetcher] = {}
        self._leaders: dict[tuple[UUID, int], int] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, copy: Copy, leader: int) -> None:
        """Copy this partition from this leader and from no other."""
        if self._leaders.get(copy.key) == leader:
            return
        self.drop(copy.key)
        self._leaders[copy.key] = leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(leader, self._connect, self._fetch_bytes, self._supervisor)
        fetcher.add(copy)

    def drop(self, key: tuple[UUID, int]) -> None:
        """Copy this partition no more."""
        leader = self._leaders.pop(key, None)
        if leader is None:
            return
        self._fetchers[leader].remove(key)
        if self._fetchers[leader].idle:
            task = self._supervisor.spawn("replica fetcher stop", self._fetchers.pop(leader).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Stop all of them."""
        self._leaders.clear()
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers), *self._closing)
