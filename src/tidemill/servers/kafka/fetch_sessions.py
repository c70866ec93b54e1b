"""Fetch sessions (KIP-227): a consumer names its partitions once, then only what changed.

The rules, by the session id and epoch of a request: epoch -1 asks without a session (and ends the one it names),
epoch 0 asks for everything and opens a new session, epoch n > 0 changes the session and asks for all that is in it;
n must be the one that the session expects. An answer within a session leaves out partitions about which there
is nothing new. A session is a cache: there are at most SESSIONS_MAX, one that was not used for a while makes room,
and when there is no room the answer simply names no session and the client goes on without.

A request may name very many partitions, so they are taken in slices of time. The epoch moves first: a request that
comes meanwhile on another connection is told that its epoch is not the expected one.
"""

from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from tidemill.model.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from tidemill.wire.kafka.cursor import TopicKey
from tidemill.wire.kafka.fetch import TOPIC_IDS_FROM, FetchOutcome, FetchPartition, FetchRequest

SESSIONS_MAX = 1000
SESSION_PARTITIONS_MAX = 10_000
UNUSED_S = 120.0
NO_SESSION = 0
FULL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = 2**31 - 1

Key: TypeAlias = tuple[TopicKey, int]
_T = TypeVar("_T")


class SlicedIteration(Protocol):
    """Goes through items with pauses for others."""

    def __call__(self, items: Iterable[_T], /) -> AsyncIterable[_T]:
        """The items, one after the other."""


class FetchedPartition(NamedTuple):
    """One partition that a fetch asks for."""

    topic: TopicKey
    partition: FetchPartition


class _Told:
    """What the client last heard about a partition."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: FetchedPartition) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1


class FetchSession:
    """The partitions of one consumer, in the order in which they are served."""

    def __init__(self, session_id: int, *, by_id: bool) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.last_used = 0.0
        self._told: dict[Key, _Told] = {}

    def __len__(self) -> int:
        return len(self._told)

    async def update(
        self, added: Iterable[FetchedPartition], forgotten: Iterable[Key], in_slices: SlicedIteration
    ) -> None:
        """Take in what a request adds, changes and forgets."""
        async for wanted in in_slices(added):
            key = (wanted.topic, wanted.partition.partition)
            known = self._told.get(key)
            if known is None:
                self._told[key] = _Told(wanted)
            else:
                known.wanted = wanted
        async for key in in_slices(forgotten):
            self._told.pop(key, None)

    def wanted(self) -> list[FetchedPartition]:
        """All partitions of the session."""
        return [told.wanted for told in self._told.values()]

    def is_news(self, topic: TopicKey, outcome: FetchOutcome) -> bool:
        """Whether an outcome says something new, which is remembered as told.

        A partition that gave records goes to the end of the row, so that all get their turn.
        """
        key = (topic, outcome.partition)
        told = self._told.get(key)
        if told is None:
            return False
        heard = (told.high_watermark, told.log_start_offset) == (outcome.high_watermark, outcome.log_start_offset)
        if heard and not outcome.records_size and not outcome.error_code:
            return False
        told.high_watermark, told.log_start_offset = outcome.high_watermark, outcome.log_start_offset
        if outcome.error_code:
            told.high_watermark = told.log_start_offset = -1
        if outcome.records_size:
            self._told[key] = self._told.pop(key)
        return True


class FetchSessions:
    """All sessions of one door."""

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self._by_id: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    async def begin(
        self, request: FetchRequest, version: int, now: float, in_slices: SlicedIteration
    ) -> tuple[FetchSession | None, list[FetchedPartition]]:
        """The session of the request, if it has one, and the partitions that it asks for."""
        if request.session_epoch > FULL_EPOCH:
            session = await self._continue(request, version, in_slices)
            session.last_used = now
            return session, session.wanted()
        if request.session_id != NO_SESSION:
            self._by_id.pop(request.session_id, None)
        # A partition that is named twice counts once, as in a session: each one costs a read and a watch.
        distinct = {(each.topic, each.partition.partition): each async for each in in_slices(listed(request))}
        wanted = list(distinct.values())
        if request.session_epoch == FINAL_EPOCH:
            return None, wanted
        opened = self._open(version, now, len(wanted))
        if opened is not None:
            await opened.update(wanted, (), in_slices)
        return opened, wanted

    async def _continue(self, request: FetchRequest, version: int, in_slices: SlicedIteration) -> FetchSession:
        session = self._by_id.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {request.session_id}")
        if session.by_id != (version >= TOPIC_IDS_FROM):
            raise FetchSessionTopicIdError
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpoch(f"epoch {request.session_epoch} where {session.epoch} is expected")
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        await session.update(listed(request), _forgotten(request), in_slices)
        if len(session) > SESSION_PARTITIONS_MAX:
            self._by_id.pop(session.session_id, None)
            raise FetchSessionIdNotFound("the fetch session has too many partitions")
        return session

    def _open(self, version: int, now: float, partitions: int) -> FetchSession | None:
        if partitions > SESSION_PARTITIONS_MAX or not self._make_room(now):
            return None
        session_id = self._new_id()
        while session_id in self._by_id or session_id == NO_SESSION:
            session_id = self._new_id()
        session = FetchSession(session_id, by_id=version >= TOPIC_IDS_FROM)
        session.last_used = now
        self._by_id[session_id] = session
        return session

    def _make_room(self, now: float) -> bool:
        if len(self._by_id) < SESSIONS_MAX:
            return True
        oldest = min(self._by_id.values(), key=lambda session: session.last_used)
        if now - oldest.last_used < UNUSED_S:
            return False
        del self._by_id[oldest.session_id]
        return True


def listed(request: FetchRequest) -> Iterator[FetchedPartition]:
    """The partitions that the request itself names."""
    for topic, partitions in request.topics:
        for partition in partitions:
            yield FetchedPartition(topic, partition)


def _forgotten(request: FetchRequest) -> Iterator[Key]:
    """The partitions that leave the session."""
    for topic, partitions in request.forgotten:
        for index in partitions:
            yield topic, index
