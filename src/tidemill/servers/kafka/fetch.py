"""Fetch: whole batches as they lie in the log, now or as soon as there are enough.

The rules: partitions are served in the order asked; the first that has records gives at least one
batch whatever the limits say, then the limits count down. The answer leaves at once when it has min_bytes, an error,
nothing to wait for or no time to wait; otherwise the fetch sleeps until one of its partitions grows or the time is up.
A woken fetch reads again only the partitions that grew, and only when what they grew by may be enough.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from uuid import UUID

from tidemill.model.errors import (
    ClusterAuthorizationFailed,
    OffsetOutOfRange,
    TidemillError,
    UnknownTopicId,
    UnsupportedCompressionType,
)
from tidemill.records.compression import Codec
from tidemill.records.header import iter_headers
from tidemill.servers.kafka.api import Api, Buffers, Call, error_code
from tidemill.servers.kafka.fetch_sessions import NO_SESSION, FetchedPartition, FetchSession, FetchSessions
from tidemill.servers.kafka.loop_guard import LOOP_ITEMS_MAX
from tidemill.streams.core.follower import Diverged, OutOfRange, Question
from tidemill.streams.partition import Partition, ReadResult
from tidemill.wire.kafka.cursor import TopicKey
from tidemill.wire.kafka.fetch import FetchOutcome, FetchRequest, read_fetch, write_fetch

VERSIONS = (4, 17)
SHORT_BYTES_MAX = 64 * 1024
"""The most that one answer holds while memory is short."""
_ZSTD_FROM = 10
_SESSION_ID_MAX = 2**31 - 1


class _PartitionFetch:
    """One partition of a fetch: what is wanted, and what it gave so far."""

    __slots__ = (
        "outcome",
        "partition",
        "read_end_offset",
        "read_size_bytes",
        "topic",
        "topic_name",
        "unseen_end_offset",
        "wanted",
    )

    def __init__(self, wanted: FetchedPartition) -> None:
        self.topic: TopicKey = wanted.topic
        self.wanted = wanted.partition
        self.topic_name = ""
        self.partition: Partition | None = None
        self.outcome = FetchOutcome(wanted.partition.partition)
        self.read_size_bytes = 0
        self.read_end_offset = -1
        self.unseen_end_offset = -1

    def fail(self, error: BaseException) -> None:
        self.outcome = FetchOutcome(self.wanted.partition, error_code(error))

    def growth_bytes(self) -> int:
        """How many bytes came since the partition was read."""
        return max(0, self.partition.size_bytes - self.read_size_bytes) if self.partition is not None else 0

    def revealed(self) -> bool:
        """Whether readers may see all that was there, and not for them, when the partition was read.

        How many bytes that is nobody knows, nor are they among those that came since.
        """
        unseen = self.unseen_end_offset
        return self.partition is not None and 0 <= unseen <= self.partition.high_watermark

    def stale(self) -> bool:
        """Whether readers may see more than the outcome says."""
        partition = self.partition
        return partition is not None and (partition.high_watermark, partition.last_stable_offset) != (
            self.outcome.high_watermark,
            self.outcome.last_stable_offset,
        )

    def grown(self) -> bool:
        """Whether there are records behind those that were read, committed or not."""
        return self.partition is not None and self.partition.log_end_offset != self.read_end_offset


class _FetchWait:
    """What a waiting fetch hears: partitions that woke it, and that its time is up.

    Whether the time is up is what the timer says, not what a clock says: a loop's timers may come a little early.
    """

    __slots__ = ("_heard", "_loop", "expired", "woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heard = loop.create_future()
        self.woken: set[_PartitionFetch] = set()
        self.expired = False

    def wake(self, reading: _PartitionFetch) -> None:
        self.woken.add(reading)
        self._resolve()

    def expire(self) -> None:
        self.expired = True
        self._resolve()

    async def next(self) -> None:
        """Return when something was heard since the last time."""
        await self._heard
        self._heard = self._loop.create_future()

    def _resolve(self) -> None:
        if not self._heard.done():
            self._heard.set_result(None)


class Fetch:
    """One request on its way to its answer."""

    def __init__(self, call: Call, request: FetchRequest, wanted: list[FetchedPartition]) -> None:
        self._call = call
        self._request = request
        limit = SHORT_BYTES_MAX if call.memory_short else call.broker.settings.fetch_max_bytes
        self._max_bytes = min(request.max_bytes, limit)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._wanted = wanted
        self.readings: list[_PartitionFetch] = []
        self._size = 0
        self._failed = False

    async def run(self) -> None:
        """Read until the answer may leave."""
        self.readings = [_PartitionFetch(each) async for each in self._call.in_slices(self._wanted)]
        async for reading in self._call.in_slices(self.readings):
            await self._read(reading)
        if self._complete() or self._request.max_wait_ms <= 0:
            return
        loop = asyncio.get_running_loop()
        turn = _FetchWait(loop)
        ends: list[Callable[[], None]] = []
        timer = loop.call_later(self._request.max_wait_ms / 1000, turn.expire)
        try:
            async for reading in self._call.in_slices(self.readings):
                ends.append(self._watch(reading, turn))
                if self._stale(reading):
                    turn.woken.add(reading)
            while not self._complete() and not turn.expired:
                if self._worthwhile(turn.woken):
                    await self._read_again(turn.woken)
                else:
                    await turn.next()
            if not self._complete():
                await self._read_again(turn.woken)
        finally:
            timer.cancel()
            for end in ends:
                end()

    def _complete(self) -> bool:
        return self._failed or not self.readings or self._size >= self._min_bytes

    def _worthwhile(self, woken: set[_PartitionFetch]) -> bool:
        """Whether reading again may complete the answer; a partition that woke without having grown has other news."""
        growth = [reading.growth_bytes() for reading in woken]
        if self._request.committed or not all(growth) or any(reading.revealed() for reading in woken):
            return bool(woken)
        return self._size + sum(growth) >= self._min_bytes

    def _stale(self, reading: _PartitionFetch) -> bool:
        return reading.stale()

    def _watch(self, reading: _PartitionFetch, turn: _FetchWait) -> Callable[[], None]:
        if reading.partition is None:
            raise RuntimeError("a fetch with an error does not wait")
        return reading.partition.watch(partial(turn.wake, reading))

    async def _read_again(self, woken: set[_PartitionFetch]) -> None:
        readings = list(woken)
        woken.clear()
        async for reading in self._call.in_slices(readings):
            self._size -= reading.outcome.records_size
            await self._read(reading)

    async def _read(self, reading: _PartitionFetch) -> None:
        try:
            partition = reading.partition or self._find(reading)
            wanted = reading.wanted
            reading.read_size_bytes, end_offset = partition.size_bytes, partition.log_end_offset
            found = await partition.read(
                wanted.offset,
                min(wanted.max_bytes, self._max_bytes - self._size),
                committed=self._request.committed,
                at_least_one=not self._size,
                leader_epoch=wanted.leader_epoch,
            )
            if self._call.version < _ZSTD_FROM:
                _refuse_zstd(found)
        except TidemillError as error:
            reading.fail(error)
            self._failed = True
            return
        self._size += found.size
        reading.unseen_end_offset = end_offset if found.high_watermark < end_offset else -1
        reading.outcome = FetchOutcome(
            wanted.partition,
            0,
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            found.aborted if self._request.committed else None,
            found.records,
            found.size,
        )

    def _find(self, reading: _PartitionFetch) -> Partition:
        topic = reading.topic
        reading.topic_name = topic if isinstance(topic, str) else _name_of(self._call, topic)
        reading.partition = self._call.broker.partition(reading.topic_name, reading.wanted.partition)
        return reading.partition


class ReplicaFetch(Fetch):
    """The same for a broker that copies: up to the end of the log, or where its own log is another one."""

    def __init__(self, call: Call, request: FetchRequest, wanted: list[FetchedPartition]) -> None:
        super().__init__(call, request, wanted)
        self._node_id = request.replica_id

    def _stale(self, reading: _PartitionFetch) -> bool:
        return reading.grown()

    def _watch(self, reading: _PartitionFetch, turn: _FetchWait) -> Callable[[], None]:
        if reading.partition is None:
            raise RuntimeError("a fetch with an error does not wait")
        return reading.partition.watch(partial(turn.wake, reading), replica=True)

    async def _read(self, reading: _PartitionFetch) -> None:
        wanted = reading.wanted
        try:
            partition = reading.partition or self._find(reading)
            reading.read_size_bytes, reading.read_end_offset = partition.size_bytes, partition.log_end_offset
            found = await partition.read_as_replica(
                self._node_id,
                Question(partition.leader, wanted.leader_epoch, wanted.offset, wanted.last_epoch),
                min(wanted.max_bytes, self._max_bytes - self._size),
                at_least_one=not self._size,
            )
        except TidemillError as error:
            reading.fail(error)
            self._failed = True
            return
        if not isinstance(found, ReadResult):
            self._failed = True
            reading.outcome = _elsewhere(wanted.partition, found, partition)
            return
        self._size += found.size
        reading.outcome = FetchOutcome(
            wanted.partition,
            0,
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            None,
            found.records,
            found.size,
        )


def _elsewhere(index: int, found: Diverged | OutOfRange, partition: Partition) -> FetchOutcome:
    """The answer to a replica whose log is not a part of this one."""
    code = OffsetOutOfRange.code if isinstance(found, OutOfRange) else 0
    outcome = FetchOutcome(index, code, partition.high_watermark, -1, partition.log_start_offset)
    return outcome if isinstance(found, OutOfRange) else outcome._replace(diverging=(found.epoch, found.end_offset))


def _refuse_zstd(found: ReadResult) -> None:
    for chunk in found.records:
        for _, header in iter_headers(chunk):
            if header.codec == Codec.ZSTD:
                raise UnsupportedCompressionType


def _name_of(call: Call, topic_id: UUID) -> str:
    known = call.broker.topic_by_id(topic_id)
    if known is None:
        raise UnknownTopicId(f"no topic has the id {topic_id}")
    return known.name


class FetchHandler:
    """Fetch of one door, with its sessions."""

    def __init__(self, sessions: FetchSessions) -> None:
        self._sessions = sessions

    async def handle(self, call: Call, request: FetchRequest) -> Buffers:
        """Answer one fetch."""
        try:
            copies = request.replica_id >= 0
            if copies and call.peer != request.replica_id:
                raise ClusterAuthorizationFailed("only brokers of this cluster may fetch as a replica")
            now = asyncio.get_running_loop().time()
            session, wanted = await self._sessions.begin(request, call.version, now, call.in_slices)
        except TidemillError as error:
            call.broker.telemetry.api("Fetch").failed(error.code)
            return write_fetch(call.version, [], error_code=error.code)
        fetch = ReplicaFetch(call, request, wanted) if copies else Fetch(call, request, wanted)
        await fetch.run()
        if not copies:
            await self._count(call, fetch)
        return await _answer(call, request, session, fetch)

    @staticmethod
    async def _count(call: Call, fetch: Fetch) -> None:
        telemetry = call.broker.telemetry
        async for reading in call.in_slices(fetch.readings):
            outcome = reading.outcome
            if outcome.error_code:
                telemetry.api("Fetch").failed(outcome.error_code)
            elif outcome.records_size:
                telemetry.topic(reading.topic_name).fetched(outcome.records_size)


async def _answer(call: Call, request: FetchRequest, session: FetchSession | None, fetch: Fetch) -> Buffers:
    pairs = [(reading.topic, reading.outcome) async for reading in call.in_slices(fetch.readings)]
    if session is not None:
        news = [pair async for pair in call.in_slices(pairs) if session.is_news(*pair)]
        if request.session_epoch > 0:
            pairs = news
    session_id = NO_SESSION if session is None else session.session_id
    if len(pairs) > LOOP_ITEMS_MAX:
        return await call.in_worker(_encoded, call.version, pairs, session_id)
    return _encoded(call.version, pairs, session_id)


def _encoded(version: int, pairs: list[tuple[TopicKey, FetchOutcome]], session_id: int) -> Buffers:
    by_topic: dict[TopicKey, list[FetchOutcome]] = {}
    for topic, outcome in pairs:
        by_topic.setdefault(topic, []).append(outcome)
    return write_fetch(version, list(by_topic.items()), session_id=session_id)


def apis() -> list[Api]:
    """Fetch with sessions of its own."""
    rng = Random()  # noqa: S311 - an id to tell sessions apart, not a secret
    handler = FetchHandler(FetchSessions(lambda: rng.randrange(1, _SESSION_ID_MAX)))
    return [Api(key=1, versions=VERSIONS, handle=handler.handle, read=read_fetch, abandoned=True)]
