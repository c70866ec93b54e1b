"""The engine of the group coordinator: it reads the journal, runs the decisions of `core`, and keeps the deadlines.

Rules:
- Changes of one group run one after the other (`_turn`): decide, make durable, replay, answer.
- An answer is sent after the entries that it depends on are durable. If the journal rejects them, the caller gets the
  error and the group is unchanged.
- One timer serves all groups. Each group reports when it must be checked next.
- Deadlines use the wall clock that commits are stamped with. If an operator sets that clock, it moves relative to
  `steady`, a monotonic clock. Then all deadlines move by the same amount, so no session gets shorter or longer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

import structlog

from tidemill.groups.core.catalog import TopicCatalog, TopicShape
from tidemill.groups.core.classic_group import NEVER_MS
from tidemill.groups.core.consumer_group import ConsumerGroup
from tidemill.groups.core.entries import GroupEntry
from tidemill.groups.core.limits import GroupLimits
from tidemill.groups.core.messages import Answer, GroupStep, Ticket
from tidemill.groups.core.records import decode
from tidemill.groups.core.shard import Shard
from tidemill.groups.interface import MakeTimers
from tidemill.groups.writer import ShardWriter
from tidemill.model.errors import (
    CoordinatorLoadInProgress,
    InvalidGroupId,
    KafkaError,
    NotCoordinator,
    TidemillError,
)
from tidemill.records.journal import Journal
from tidemill.supervision.supervisor import Supervisor

RETRY_MS = 1_000
COMPUTED_IN_PLACE_MAX = 1_000
"""Larger decisions (counted in members, names and partitions) run in a thread."""
CLOCK_SET_MS = 1_000
"""A difference of the two clocks from this size on means that the clock was set."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

log = structlog.get_logger(__name__)


class GroupEngine:
    """The groups of this broker: loading, running decisions, and timers. `GroupCoordinator` adds the requests."""

    def __init__(
        self,
        journal: Journal,
        *,
        topics: Callable[[], Iterable[TopicShape]],
        image_version: Callable[[], int],
        make_timers: MakeTimers,
        clock: Callable[[], int],
        steady: Callable[[], int] | None = None,
        new_id: Callable[[], str] = lambda: str(uuid4()),
        limits: GroupLimits | None = None,
        limits_of: Callable[[str], GroupLimits] | None = None,
        may_expire: Callable[[], bool] = lambda: True,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor()
        self.rebalances = 0
        """How many generations and epochs of groups have begun here."""
        self.offset_commits = 0
        """How many commits of offsets are durable."""
        self.limits = limits or GroupLimits()
        self._limits_of = limits_of
        self._journal = journal
        self._topics = topics
        self._image_version = image_version
        self._wall = clock
        self._steady = steady or clock
        self._ahead_ms = clock() - self._steady()
        self._new_id = new_id
        self._may_expire = may_expire
        self._catalog = TopicCatalog(-1)
        self._shards: dict[int, Shard] = {}
        self.led: Mapping[int, int] | None = None
        """The journal partitions that this broker leads, with their epochs; None before the start."""
        self._read_in: dict[int, int] = {}
        """The leader epochs in which the shards were read."""
        self._writers: dict[int, ShardWriter] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._parked: dict[asyncio.Future[Any], int] = {}  # ordered, so that a shutdown is deterministic
        self._alarms = make_timers(self._clock, self._on_deadline)
        self._tasks: set[asyncio.Task[None]] = set()
        self._expiry: asyncio.Task[None] | None = None
        self._closed = False
        # One dedicated thread, not the shared pool: large groups must not delay file access or other parts.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="groups")

    # -- life cycle ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to expire offsets. Until its partition is loaded, a group gets CoordinatorLoadInProgress."""
        self._expiry = self._supervisor.keep("group offsets expiry", self._expire_for_ever)

    @property
    def loaded(self) -> Collection[int]:
        """The journal partitions that were read."""
        return self._shards.keys()

    async def load(self, partition: int, epoch: int) -> None:
        """Read the groups of a partition that this broker leads since `epoch`."""
        if self._closed:
            return
        shard = Shard(self.limits, self._limits_of)
        async for records in self._journal.replay(partition):
            for record in records:
                entry = None if record.key is None else _decoded(record.key, record.value, partition)
                if entry is not None:
                    shard.replay(entry)
        shard.loaded(self._clock())
        self._shards[partition], self._read_in[partition] = shard, epoch
        self._writers[partition] = ShardWriter(self._journal, partition, shard)
        for group_id in list(shard.groups):
            self._schedule(shard, group_id)

    async def let_go(self, partitions: Iterable[int]) -> None:
        """Forget the groups of partitions that another broker leads now. Waiting members get NotCoordinator."""
        for partition in partitions:
            await self._let_go(partition)

    async def _let_go(self, partition: int) -> None:
        self._shards.pop(partition, None)
        writer = self._writers.pop(partition, None)
        for future in [future for future, where in self._parked.items() if where == partition]:
            _refuse(future)
        if writer is not None:
            await writer.close()

    async def close(self) -> None:
        """Answer the requests that wait, and stop."""
        self._closed = True
        self._worker.shutdown(wait=False)
        self._alarms.close()
        for task in [*self._tasks, *([self._expiry] if self._expiry else [])]:
            task.cancel()
        await asyncio.gather(*self._tasks, *([self._expiry] if self._expiry else []), return_exceptions=True)
        for writer in self._writers.values():
            await writer.close()
        for future in list(self._parked):
            _refuse(future)

    def settings_changed(self, group_id: str) -> None:
        """The group has other settings now; they count from the next heartbeat of each member on."""
        shard = self._shards.get(self._journal.partition_of(group_id))
        group = None if shard is None else shard.groups.get(group_id)
        if shard is not None and isinstance(group, ConsumerGroup):
            group.limits = shard.limits_of(group_id)

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that stores the group."""
        return self._journal.partition_of(group_id)

    # -- internals ----------------------------------------------------------------------------------------------------

    def _shard(self, group_id: str) -> Shard:
        if self._closed:
            raise NotCoordinator
        if not group_id or len(group_id) > self.limits.name_length_max:
            raise InvalidGroupId(
                f"the group id has {len(group_id)} characters; 1 to {self.limits.name_length_max} are allowed"
            )
        partition = self._journal.partition_of(group_id)
        shard = self._shards.get(partition)
        if shard is None:
            raise CoordinatorLoadInProgress if self.led is None or partition in self.led else NotCoordinator
        if not self._journal.leads(partition, self._read_in[partition]):
            raise NotCoordinator
        return shard

    def _turn(self, group_id: str) -> asyncio.Lock:
        turn = self._turns.get(group_id)
        if turn is None:
            turn = self._turns[group_id] = asyncio.Lock()
        return turn

    def _ticket(self, group_id: str) -> asyncio.Future[Any]:
        ticket: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._parked[ticket] = self._journal.partition_of(group_id)
        ticket.add_done_callback(self._parked.pop)
        return ticket

    def _topics_now(self) -> TopicCatalog:
        version = self._image_version()
        if version != self._catalog.version:
            self._catalog = TopicCatalog(version, self._topics())
        return self._catalog

    def _submit(self, group_id: str, entries: tuple[GroupEntry, ...]) -> Awaitable[None]:
        writer = self._writers.get(self._journal.partition_of(group_id))
        if writer is None:
            raise NotCoordinator
        return writer.submit(entries)

    async def _downgrade(self, shard: Shard, group_id: str) -> None:
        await self._perform(shard, group_id, lambda now_ms: shard.downgrade(group_id, self._topics_now(), now_ms))

    async def _computed(self, size: int, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function that reads groups and changes none; a large one runs in the dedicated thread.

        The caller holds the group's turn, so nothing else changes the group meanwhile.
        """
        if size <= COMPUTED_IN_PLACE_MAX:
            return function(*args, **kwargs)
        if self._closed:
            raise NotCoordinator
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)

    async def _perform(self, shard: Shard, group_id: str, decide: Callable[[int], GroupStep], *, size: int = 0) -> None:
        """Decide, make durable, replay, answer. The caller holds the group's turn.

        `size` is the number of items that `decide` visits. A large decision runs in a thread, so it may only read the
        group.
        """
        before = _generation_of(shard, group_id)
        step = await self._computed(size, decide, self._clock())
        group = shard.groups.get(group_id)
        outbox = group.outbox if group is not None else []
        try:
            if step.entries:
                await self._submit(group_id, step.entries)
        except KafkaError as error:
            self._deliver(outbox, error)
            self._schedule(shard, group_id, self._clock() + RETRY_MS)
            raise
        if step.then is not None:
            step.then()
        if _generation_of(shard, group_id) > before:
            self.rebalances += 1
            shard.groups[group_id].rebalanced_ms.append(self._clock())
        self._deliver(outbox, None)
        self._schedule(shard, group_id)

    def _deliver(self, outbox: list[tuple[Ticket, Answer]], failure: KafkaError | None) -> None:
        for ticket, answer in outbox:
            if not isinstance(ticket, asyncio.Future) or ticket.done():
                continue
            refusal = failure or (answer if isinstance(answer, KafkaError) else None)
            if refusal is None:
                ticket.set_result(answer)
            else:
                ticket.set_exception(refusal)
                ticket.exception()  # marks the error as retrieved: the requester may have stopped waiting
        outbox.clear()

    # -- time ---------------------------------------------------------------------------------------------------------

    def _clock(self) -> int:
        """Return the time that all deadlines use; move the deadlines if the clock was set."""
        now_ms = self._wall()
        jump_ms = now_ms - self._steady() - self._ahead_ms
        if abs(jump_ms) >= CLOCK_SET_MS:
            self._ahead_ms += jump_ms
            self._alarms.shift(jump_ms)
            for shard in self._shards.values():
                for group in shard.groups.values():
                    group.shift(jump_ms)
            log.warning("clock_set", by_ms=jump_ms)
        return now_ms

    def _schedule(self, shard: Shard, group_id: str, not_before_ms: int = 0) -> None:
        group = shard.groups.get(group_id)
        if group is not None and group.wake_ms < NEVER_MS:
            self._alarms.set(group_id, max(group.wake_ms, not_before_ms))

    def _on_deadline(self, group_id: str) -> None:
        task = self._supervisor.spawn("group deadline", self._tick(group_id), about=group_id)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tick(self, group_id: str) -> None:
        shard = self._shards.get(self._journal.partition_of(group_id))
        if shard is None:
            return
        async with self._turn(group_id):
            group = shard.groups.get(group_id)
            if group is None:
                return
            try:
                await self._perform(shard, group_id, group.tick)
                await self._downgrade(shard, group_id)
                shard.drop_unused(group_id)
            except TidemillError as error:
                log.warning("group_deadline_failed", group=group_id, error=str(error))
            except Exception:
                self._alarms.set(group_id, self._clock() + RETRY_MS)  # otherwise nothing checks the group again
                raise

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.limits.expiry_interval_ms / 1000)
            try:
                await self.expire()
            except TidemillError as error:
                log.warning("offset_expiry_failed", error=str(error))

    async def expire(self) -> None:
        """Delete offsets past their retention, and groups that are then empty. Skipped while the clock is in doubt."""
        for shard in list(self._shards.values()):
            for group_id in dict.fromkeys((*shard.groups, *shard.offsets.groups())):
                await self._expire_group(shard, group_id)

    async def _expire_group(self, shard: Shard, group_id: str) -> None:
        def decide(
            now_ms: int,
        ) -> GroupStep:  # checked here: the clock may have been set while waiting for the turn
            return shard.expire(group_id, now_ms) if self._may_expire() else GroupStep()

        async with self._turn(group_id):
            await self._perform(shard, group_id, decide)


def _generation_of(shard: Shard, group_id: str) -> int:
    group = shard.groups.get(group_id)
    return 0 if group is None else group.generation


def _refuse(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(NotCoordinator())
        future.exception()  # marks the error as retrieved: the requester may have disconnected


def _decoded(key: bytes, value: bytes | None, partition: int) -> GroupEntry | None:
    try:
        return decode(key, value)
    except ValueError as error:
        log.warning("group_record_unreadable", partition=partition, error=str(error))
        return None
