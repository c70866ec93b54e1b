"""Fetch: returns whole batches, unchanged from the log, at once or when min_bytes are available.

Partitions are served in the order of the request. The first one with records returns at least one batch, whatever the
limits are; after that the limits apply. The response is sent at once when it has min_bytes or an error, when it names
no partitions, or when max_wait_ms is 0. Otherwise the fetch waits until a partition grows or the time is up. It then
reads only the partitions that grew, and only if their growth may be enough.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from uuid import UUID

from tidemill.broker.metrics import FETCH
from tidemill.model.errors import (
    ClusterAuthorizationFailed,
    OffsetOutOfRange,
    TidemillError,
    UnknownTopicId,
    UnsupportedCompressionType,
)
from tidemill.records.compression import Codec
from tidemill.records.header import iter_headers
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.kafka.api import Buffers, Call, error_code
from tidemill.servers.kafka.error_counts import count_error, error_class
from tidemill.servers.kafka.fetch_sessions import (
    FULL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchSession,
    FetchSessions,
)
from tidemill.servers.kafka.loop_guard import LOOP_ITEMS_MAX
from tidemill.servers.kafka.quota_checks import FetchQuota
from tidemill.streams.core.follower import Diverged, OutOfRange, Question
from tidemill.streams.partition import Partition, ReadResult
from tidemill.tracing.record_tracer import RecordTracer
from tidemill.wire.kafka.cursor import TopicKey
from tidemill.wire.kafka.fetch import FetchOutcome, FetchRequest, write_fetch

SHORT_BYTES_MAX = 64 * 1024
"""The size limit of a response while memory is short."""
_ZSTD_FROM = 10
_READ, _TOPIC = Operation.READ, ResourceType.TOPIC


class _PartitionFetch:
    """One partition of a fetch: its request and its result so far."""

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
        """Bytes appended since the partition was read."""
        return max(0, self.partition.size_bytes - self.read_size_bytes) if self.partition is not None else 0

    def revealed(self) -> bool:
        """Whether records that were above the high watermark at the last read are now all visible.

        Their size is unknown, and `growth_bytes` does not contain them.
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
        """Whether records were appended after the last read, committed or not."""
        return self.partition is not None and self.partition.log_end_offset != self.read_end_offset


class _FetchWait:
    """The events of a waiting fetch: partitions that woke it, and the end of its time.

    The timer sets `expired`. A clock is not compared, because timers of the event loop may fire a little early.
    """

    __slots__ = ("_event", "_loop", "expired", "woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = loop.create_future()
        self.woken: set[_PartitionFetch] = set()
        self.expired = False

    def wake(self, reading: _PartitionFetch) -> None:
        self.woken.add(reading)
        self._resolve()

    def expire(self) -> None:
        self.expired = True
        self._resolve()

    async def next(self) -> None:
        """Return when an event has occurred since the last call."""
        await self._event
        self._event = self._loop.create_future()

    def _resolve(self) -> None:
        if not self._event.done():
            self._event.set_result(None)


class Fetch:
    """One fetch request in progress."""

    def __init__(
        self, call: Call, request: FetchRequest, wanted: list[FetchedPartition], quota: FetchQuota | None = None
    ) -> None:
        self._call = call
        self._request = request
        limit = SHORT_BYTES_MAX if call.memory_short else call.broker.settings.fetch_max_bytes
        self._max_bytes = min(request.max_bytes, limit if quota is None else quota.limited(limit))
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._wanted = wanted
        self.readings: list[_PartitionFetch] = []
        self._size = 0
        self._failed = False

    @property
    def size(self) -> int:
        """Bytes of the records that were read."""
        return self._size

    async def run(self) -> None:
        """Read until the response is complete."""
        self.readings = [_PartitionFetch(each) async for each in self._call.in_slices(self._wanted)]
        async for reading in self._call.in_slices(self.readings):
            await self._read(reading)
        if self._complete() or self._request.max_wait_ms <= 0:
            return
        loop = asyncio.get_running_loop()
        turn = _FetchWait(loop)
        ends: list[Callable[[], None]] = []
        timer = loop.call_later(self._request.max_wait_ms / 1000, turn.expire)
        telemetry = self._call.broker.metrics
        telemetry.fetches_waiting += 1
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
            telemetry.fetches_waiting -= 1
            timer.cancel()
            for end in ends:
                end()

    def _complete(self) -> bool:
        return self._failed or not self.readings or self._size >= self._min_bytes

    def _worthwhile(self, woken: set[_PartitionFetch]) -> bool:
        """Whether another read may complete the response; a partition that woke without growth may have an error."""
        growth = [reading.growth_bytes() for reading in woken]
        if self._request.committed or not all(growth) or any(reading.revealed() for reading in woken):
            return bool(woken)
        return self._size + sum(growth) >= self._min_bytes

    def _stale(self, reading: _PartitionFetch) -> bool:
        return reading.stale()

    def _watch(self, reading: _PartitionFetch, turn: _FetchWait) -> Callable[[], None]:
        if reading.partition is None:
            raise RuntimeError("a fetch with an error does not wait")
        return reading.partition.reader.watch(partial(turn.wake, reading))

    async def _read_again(self, woken: set[_PartitionFetch]) -> None:
        readings = list(woken)
        woken.clear()
        async for reading in self._call.in_slices(readings):
            self._size -= reading.outcome.records_size
            self._forget_revoked(reading)
            await self._read(reading)

    def _forget_revoked(self, reading: _PartitionFetch) -> None:
        """Look a partition up again, with its check, that the client may not read any more: it may have waited long."""
        if not self._call.allows(_READ, _TOPIC, reading.topic_name):
            reading.partition = None

    async def _read(self, reading: _PartitionFetch) -> None:
        try:
            partition = reading.partition or self._find(reading)
            wanted = reading.wanted
            reading.read_size_bytes, end_offset = partition.size_bytes, partition.log_end_offset
            found = await partition.reader.read(
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
        self._call.check(_READ, _TOPIC, reading.topic_name)
        reading.partition = self._call.broker.view.partition(reading.topic_name, reading.wanted.partition)
        return reading.partition


class ReplicaFetch(Fetch):
    """The fetch of a follower: reads up to the end of the log, or returns where the logs diverge."""

    def __init__(self, call: Call, request: FetchRequest, wanted: list[FetchedPartition]) -> None:
        super().__init__(call, request, wanted)
        self._node_id = request.replica_id

    def _stale(self, reading: _PartitionFetch) -> bool:
        return reading.grown()

    def _watch(self, reading: _PartitionFetch, turn: _FetchWait) -> Callable[[], None]:
        if reading.partition is None:
            raise RuntimeError("a fetch with an error does not wait")
        return reading.partition.reader.watch(partial(turn.wake, reading), replica=True)

    async def _read(self, reading: _PartitionFetch) -> None:
        wanted = reading.wanted
        try:
            partition = reading.partition or self._find(reading)
            reading.read_size_bytes, reading.read_end_offset = partition.size_bytes, partition.log_end_offset
            found = await partition.leader.read_as_replica(
                self._node_id,
                Question(partition.leader_id, wanted.leader_epoch, wanted.offset, wanted.last_epoch),
                min(wanted.max_bytes, self._max_bytes - self._size),
                at_least_one=not self._size,
            )
        except TidemillError as error:
            reading.fail(error)
            self._failed = True
            return
        if not isinstance(found, ReadResult):
            self._failed = True
            reading.outcome = _diverged(wanted.partition, found, partition)
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


def _diverged(index: int, found: Diverged | OutOfRange, partition: Partition) -> FetchOutcome:
    """The result for a follower whose log has diverged or is out of range."""
    code = OffsetOutOfRange.code if isinstance(found, OutOfRange) else 0
    outcome = FetchOutcome(index, code, partition.high_watermark, -1, partition.log_start_offset)
    return outcome if isinstance(found, OutOfRange) else outcome._replace(diverging=(found.epoch, found.end_offset))


def _refuse_zstd(found: ReadResult) -> None:
    for chunk in found.records:
        for _, header in iter_headers(chunk):
            if header.codec == Codec.ZSTD:
                raise UnsupportedCompressionType


def _name_of(call: Call, topic_id: UUID) -> str:
    known = call.broker.view.topic_by_id(topic_id)
    if known is None:
        raise UnknownTopicId(f"there is no topic with id {topic_id}; refresh the metadata")
    return known.name


class FetchHandler:
    """The Fetch API of one server, with its sessions."""

    def __init__(self, sessions: FetchSessions) -> None:
        self._sessions = sessions

    async def handle(self, call: Call, request: FetchRequest) -> Buffers:
        """Serve one fetch."""
        try:
            copies = request.replica_id >= 0
            if copies and call.peer != request.replica_id:
                raise ClusterAuthorizationFailed("only brokers of this cluster may fetch as a replica")
            quota = FetchQuota.of(call)
            if quota is not None and request.session_epoch <= FULL_EPOCH and quota.must_wait():
                return write_fetch(call.version, [])  # as in Kafka, the client then opens its session again
            now = asyncio.get_running_loop().time()
            session, wanted = await self._sessions.begin(request, call.version, now, call.in_slices)
        except TidemillError as error:
            count_error(call.broker.metrics, "Fetch", error.code)
            return write_fetch(call.version, [], error_code=error.code)
        if quota is not None and quota.must_wait():
            return write_fetch(call.version, [], session_id=NO_SESSION if session is None else session.session_id)
        fetch = ReplicaFetch(call, request, wanted) if copies else Fetch(call, request, wanted, quota)
        tracer = call.broker.tracer
        if tracer is None or copies:
            await fetch.run()
        else:
            await _run_traced(tracer.records, call, fetch)
        if quota is not None and not quota.admits(fetch.size):
            return write_fetch(call.version, [], session_id=self._sessions.keep(session, request))
        if not copies:
            await self._count(call, fetch)
        return await _answer(call, request, session, fetch)

    @staticmethod
    async def _count(call: Call, fetch: Fetch) -> None:
        telemetry = call.broker.metrics
        async for reading in call.in_slices(fetch.readings):
            outcome = reading.outcome
            if outcome.error_code:
                count_error(telemetry, "Fetch", outcome.error_code)
                call.broker.note_topic_error(reading.topic, FETCH, error_class(outcome.error_code))
            elif outcome.records_size:
                telemetry.topic(reading.topic_name).fetched(outcome.records_size)


async def _run_traced(tracer: RecordTracer, call: Call, fetch: Fetch) -> None:
    started_ns = tracer.now_ns()
    await fetch.run()
    async for reading in call.in_slices(fetch.readings):
        outcome = reading.outcome
        if outcome.records_size:
            tracer.fetched(reading.topic_name, outcome.partition, outcome.records, started_ns, call.client_id)


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
