"""ShareFetch and ShareAcknowledge: records for members of share groups, on the leaders of their partitions.

A fetch may also acknowledge. What it acknowledges is stored first, whatever becomes of the connection. Then it acquires
free records of the partitions of its session, and waits for some if there are none. The response has whole batches; the
acquired ranges say which of their records the member got.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from tidemill.broker.metrics import FETCH
from tidemill.model.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    NotLeaderOrFollower,
    TidemillError,
    UnknownTopicId,
)
from tidemill.model.topics import INTERNAL
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.kafka.api import Call, error_code, error_message
from tidemill.servers.kafka.error_counts import count_error, error_class
from tidemill.servers.kafka.quota_checks import FetchQuota
from tidemill.servers.kafka.share_sessions import FINAL_EPOCH, OPEN_EPOCH, Place, ShareSession, ShareSessions
from tidemill.shares.core.acknowledgements import OFFSETS_MAX, AckBatch, check_batches
from tidemill.shares.core.durable_state import ShareKey
from tidemill.shares.live_partition import NOTHING, AcquiredRecords, AcquireLimits, LiveSharePartition

if TYPE_CHECKING:
    from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
    from kio.schema.share_acknowledge.v2.response import ShareAcknowledgeResponse
    from kio.schema.share_fetch.v2.request import ShareFetchRequest
    from kio.schema.share_fetch.v2.response import ShareFetchResponse

NAME_LENGTH_MAX = 4_096
RECORD_LIMIT_MODE = 1
NO_ID = UUID(int=0)
_MILLISECOND = timedelta(milliseconds=1)
Acknowledgements = dict[Place, list[AckBatch]]


class ShareOutcome(NamedTuple):
    """The result for one partition."""

    acquired: AcquiredRecords = NOTHING
    error: TidemillError | None = None
    ack_error: TidemillError | None = None


class ShareHandler:
    """The two APIs of one server, with their sessions."""

    def __init__(self) -> None:
        self._sessions = ShareSessions()

    async def fetch(self, call: Call["ShareFetchResponse"], request: "ShareFetchRequest") -> "ShareFetchResponse":
        """Acknowledge, then acquire."""
        group_id, member = _member(call, request)
        acks = await _acknowledgements(call, request.topics)
        named = [(_id(each), part.partition_index) for each in request.topics for part in each.partitions]
        forgotten = [(_id(each), index) for each in request.forgotten_topics_data for index in each.partitions]
        if request.share_session_epoch == OPEN_EPOCH:
            if acks:
                raise InvalidRequest("a request that opens a share session cannot acknowledge")
            session = self._sessions.open((group_id, member), call.broker.settings.group_share_max_share_sessions)
        else:
            session = self._sessions.next((group_id, member), request.share_session_epoch)
        self._belongs(call, session)
        if request.share_session_epoch != FINAL_EPOCH:
            session.update(named, forgotten)
        outcomes = await _acknowledged(call, group_id, member, acks, is_renewal=getattr(request, "is_renew_ack", False))
        if request.share_session_epoch == FINAL_EPOCH:
            self._end(call, session, was_delivered=False)
        elif not getattr(request, "is_renew_ack", False):
            await _ShareWait(call, group_id, member, request).run(session.places(), outcomes)
        return call.response(
            acquisition_lock_timeout=self._lock_ms(call, group_id) * _MILLISECOND,
            responses=_by_topic(call, "ShareFetchableTopicResponse", _fetched(call, outcomes)),
        )

    async def acknowledge(
        self, call: Call["ShareAcknowledgeResponse"], request: "ShareAcknowledgeRequest"
    ) -> "ShareAcknowledgeResponse":
        """Acknowledge records without fetching more."""
        group_id, member = _member(call, request)
        acks = await _acknowledgements(call, request.topics)
        if request.share_session_epoch == OPEN_EPOCH:
            raise InvalidShareSessionEpoch("a share session is opened by ShareFetch")
        session = self._sessions.next((group_id, member), request.share_session_epoch)
        self._belongs(call, session)
        is_renewal = getattr(request, "is_renew_ack", False)
        outcomes = await _acknowledged(call, group_id, member, acks, is_renewal=is_renewal)
        if request.share_session_epoch == FINAL_EPOCH:
            self._end(call, session, was_delivered=False)
        parts = [
            (place, _part(call, place, index=place[1], error=outcome.ack_error)) for place, outcome in outcomes.items()
        ]
        return call.response(
            acquisition_lock_timeout=self._lock_ms(call, group_id) * _MILLISECOND,
            responses=_by_topic(call, "ShareAcknowledgeTopicResponse", parts),
        )

    def _belongs(self, call: Call, session: ShareSession) -> None:
        """Tie the session to the connection of this request."""
        if session.connection is not call.identity:
            if session.connection is not None:
                session.connection.on_close.pop(session.key, None)
            session.connection = call.identity
            call.identity.on_close[session.key] = lambda: self._connection_lost(call, session)

    def _connection_lost(self, call: Call, session: ShareSession) -> None:
        if session.connection is call.identity:
            self._end(call, session, was_delivered=True)

    def _end(self, call: Call, session: ShareSession, *, was_delivered: bool) -> None:
        """End the locks of the member. One that closes has not used its records; one that vanished may have."""
        if not self._sessions.end(session):
            return
        if session.connection is not None:
            session.connection.on_close.pop(session.key, None)
        group_id, member = session.key
        call.broker.shares.release(group_id, member, was_delivered=was_delivered)
        if not self._sessions.has_group(group_id):
            call.broker.shares.forget(group_id)

    @staticmethod
    def _lock_ms(call: Call, group_id: str) -> int:
        return call.broker.shares.policy(group_id).delivery.lock_ms


class _ShareWait:
    """One fetch that acquires records, or waits for them."""

    def __init__(self, call: Call, group_id: str, member: str, request: "ShareFetchRequest") -> None:
        self._call = call
        self._group_id = group_id
        self._member = member
        self._max_wait_s = request.max_wait / timedelta(seconds=1)
        self._quota = FetchQuota.of(call)
        most = call.broker.settings.fetch_max_bytes
        self._bytes_left = min(int(request.max_bytes), most if self._quota is None else self._quota.limited(most))
        self._records_left = int(request.max_records)
        self._batch_size = max(request.batch_size, 1)
        self._is_exact = getattr(request, "share_acquire_mode", 0) == RECORD_LIMIT_MODE
        self._live: dict[Place, LiveSharePartition] = {}
        self._event = asyncio.Event()

    async def run(self, places: Sequence[Place], outcomes: dict[Place, ShareOutcome]) -> None:
        """Add what was acquired, and errors, to the outcomes."""
        if self._records_left <= 0 or self._bytes_left <= 0 or (self._quota is not None and self._quota.must_wait()):
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._max_wait_s
        ends: list[Callable[[], None]] = []
        try:
            is_done = await self._try(places, outcomes)
            if is_done or self._max_wait_s <= 0:
                return
            ends = [live.watch(self._event.set) for live in self._live.values()]
            is_done = await self._try(places, outcomes)  # something may have come before the watch
            while not is_done and await self._woken(deadline - loop.time()):
                is_done = await self._try(places, outcomes)
        finally:
            for end in ends:
                end()

    async def _woken(self, within_s: float) -> bool:
        if within_s <= 0:
            return False
        try:
            async with asyncio.timeout(within_s):
                await self._event.wait()
        except TimeoutError:
            return False
        return True

    async def _try(self, places: Sequence[Place], outcomes: dict[Place, ShareOutcome]) -> bool:
        """Acquire what is free. Whether there is something to report."""
        self._event.clear()
        is_done = False
        async for place in self._call.in_slices(places):
            if self._records_left <= 0 or self._bytes_left <= 0:
                break
            known = outcomes.get(place, ShareOutcome())
            try:
                acquired = await self._acquire(place)
            except TidemillError as error:
                outcomes[place] = known._replace(error=error)
                is_done = True
                continue
            if acquired.ranges:
                outcomes[place] = known._replace(acquired=acquired)
                is_done = True
        return is_done

    def _may_read(self, topic_id: UUID) -> bool:
        name = self._call.broker.view.topic_name(topic_id)
        return name is not None and self._call.allows(Operation.READ, ResourceType.TOPIC, name)

    async def _acquire(self, place: Place) -> AcquiredRecords:
        live = self._live.get(place)
        if live is None or not self._may_read(place[0]):  # it may have waited long: find it again, with its check
            live = self._live[place] = await _find(self._call, self._group_id, place)
        limits = AcquireLimits(self._bytes_left, self._records_left, self._batch_size, self._is_exact)
        acquired = await live.acquire(self._member, limits)
        self._bytes_left -= acquired.size
        self._records_left -= acquired.count_records
        if acquired.size and self._quota is not None:
            self._quota.admits(acquired.size)
        return acquired


def _id(topic: Any) -> UUID:
    """The id of a topic; a request can leave it out, and then no topic is found."""
    found: UUID | None = topic.topic_id
    return found or NO_ID


def _member(call: Call, request: Any) -> tuple[str, str]:
    group_id, member = request.group_id or "", request.member_id or ""
    if not group_id or len(group_id) > NAME_LENGTH_MAX:
        raise InvalidRequest(f"the group id has {len(group_id)} characters; 1 to {NAME_LENGTH_MAX} are allowed")
    if not member or len(member) > NAME_LENGTH_MAX:
        raise InvalidRequest(f"the member id has {len(member)} characters; 1 to {NAME_LENGTH_MAX} are allowed")
    call.check(Operation.READ, ResourceType.GROUP, group_id)
    return group_id, member


async def _acknowledgements(call: Call, topics: Iterable[Any]) -> Acknowledgements:
    found: Acknowledgements = {}
    total = 0
    for topic in topics:
        async for part in call.in_slices(topic.partitions):
            if part.acknowledgement_batches:
                batches = found.setdefault((_id(topic), part.partition_index), [])
                for each in part.acknowledgement_batches:
                    batches.append(AckBatch(each.first_offset, each.last_offset, tuple(each.acknowledge_types)))
                    total += len(each.acknowledge_types)
                if total > OFFSETS_MAX:
                    raise InvalidRequest(f"the request acknowledges more than {OFFSETS_MAX} records; send fewer")
    return found


async def _find(call: Call, group_id: str, place: Place) -> LiveSharePartition:
    topic_id, index = place
    topic = call.broker.view.topic_by_id(topic_id)
    if topic is None:
        raise UnknownTopicId(f"there is no topic with id {topic_id}; refresh the metadata")
    call.check(Operation.READ, ResourceType.TOPIC, topic.name)
    if topic.name in INTERNAL:
        raise InvalidRequest(f"{topic.name} is kept by the broker itself")
    return await call.broker.shares.find(ShareKey(group_id, topic_id, index), topic.name)


async def _acknowledged(
    call: Call, group_id: str, member: str, acks: Acknowledgements, *, is_renewal: bool
) -> dict[Place, ShareOutcome]:
    """Take the acknowledgements of a request. They are stored also if the client disconnects meanwhile."""
    may_renew = call.version > 1 and is_renewal and call.broker.shares.policy(group_id).may_renew

    async def one(place: Place, batches: list[AckBatch]) -> ShareOutcome:
        try:
            check_batches(batches, may_renew=may_renew)
            live = await _find(call, group_id, place)
            await live.acknowledge(member, batches)
        except TidemillError as error:
            return ShareOutcome(ack_error=error)
        return ShareOutcome()

    if not acks:
        return {}
    every = asyncio.gather(*(one(place, batches) for place, batches in acks.items()))
    return dict(zip(acks, await asyncio.shield(every), strict=True))


def _fetched(call: Call, outcomes: dict[Place, ShareOutcome]) -> list[tuple[Place, Any]]:
    parts = []
    for place, outcome in outcomes.items():
        acquired = outcome.acquired
        topic = call.broker.view.topic_by_id(place[0])
        if outcome.error is not None:
            count_error(call.broker.metrics, "ShareFetch", error_code(outcome.error))
            call.broker.note_topic_error(place[0], FETCH, error_class(error_code(outcome.error)))
        elif topic is not None and acquired.size:
            call.broker.metrics.topic(topic.name).fetched(acquired.size)
        fields = {
            "acknowledge_error_code": error_code(outcome.ack_error),
            "acknowledge_error_message": error_message(outcome.ack_error),
            "records": b"".join(acquired.chunks),
            "acquired_records": tuple(
                call.part(
                    "AcquiredRecords", first_offset=each.first, last_offset=each.last, delivery_count=each.deliveries
                )
                for each in acquired.ranges
            ),
        }
        leads_not = outcome.error or outcome.ack_error
        parts.append((place, _part(call, place, index=place[1], error=outcome.error, shown=leads_not, **fields)))
    return parts


def _part(
    call: Call,
    place: Place,
    *,
    index: int,
    error: TidemillError | None,
    shown: TidemillError | None = None,
    **fields: Any,
) -> Any:
    leader_id, epoch = -1, -1
    topic = call.broker.view.topic_by_id(place[0])
    if isinstance(shown or error, NotLeaderOrFollower) and topic is not None and index < len(topic.partitions):
        info = topic.partitions[index]
        leader_id, epoch = info.leader, info.leader_epoch
    return call.part(
        "PartitionData",
        partition_index=index,
        error_code=error_code(error),
        error_message=error_message(error),
        current_leader=call.part("LeaderIdAndEpoch", leader_id=leader_id, leader_epoch=epoch),
        **fields,
    )


def _by_topic(call: Call, name: str, parts: list[tuple[Place, Any]]) -> tuple[Any, ...]:
    topics: dict[UUID, list[Any]] = {}
    for (topic_id, _), part in parts:
        topics.setdefault(topic_id, []).append(part)
    return tuple(
        call.part(name, topic_id=topic_id, partitions=tuple(partitions)) for topic_id, partitions in topics.items()
    )
