"""Fetch sessions (KIP-227): a consumer names its partitions once, and later only the changes.

The epoch of a request selects the behaviour. Epoch -1 fetches without a session and ends the session that it names.
Epoch 0 names all partitions and opens a session. Epoch n > 0 changes the session and fetches all its partitions; n must
be the epoch that the session expects. A response within a session leaves out partitions without changes.

A session is a cache. There are at most SESSIONS_MAX, and a session that was unused for UNUSED_S may be replaced. When
none can be replaced, the response has no session id and the client continues without a session.

A request may name very many partitions, so the handler processes them in time slices. The epoch is incremented first:
a request on another connection in the meantime gets INVALID_FETCH_SESSION_EPOCH.
"""

from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from tidemill.model.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from tidemill.wire.kafka.cursor import TopicKey
from tidemill.wire.kafka.fetch import TOPIC_IDS_FROM, FetchOutcome, FetchPartition, FetchRequest

SESSION_ID_MAX = 2**31 - 1
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
    """Iterates over items with pauses for other requests."""

    def __call__(self, items: Iterable[_T], /) -> AsyncIterable[_T]:
        """The items, one after the other."""


class FetchedPartition(NamedTuple):
    """One partition that a fetch asks for."""

    topic: TopicKey
    partition: FetchPartition


class _SessionPartition:
    """One partition of a session, with the offsets of the last response."""

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
        self._partitions: dict[Key, _SessionPartition] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    async def update(
        self, added: Iterable[FetchedPartition], forgotten: Iterable[Key], in_slices: SlicedIteration
    ) -> None:
        """Apply the added, changed and forgotten partitions of a request."""
        async for wanted in in_slices(added):
            key = (wanted.topic, wanted.partition.partition)
            known = self._partitions.get(key)
            if known is None:
                self._partitions[key] = _SessionPartition(wanted)
            else:
                known.wanted = wanted
        async for key in in_slices(forgotten):
            self._partitions.pop(key, None)

    def wanted(self) -> list[FetchedPartition]:
        """All partitions of the session."""
        return [known.wanted for known in self._partitions.values()]

    def is_news(self, topic: TopicKey, outcome: FetchOutcome) -> bool:
        """Whether the response has to contain this outcome; remembers its offsets.

        A partition that returned records moves to the end of the order, so that every partition gets its turn.
        """
        key = (topic, outcome.partition)
        known = self._partitions.get(key)
        if known is None:
            return False
        is_same = (known.high_watermark, known.log_start_offset) == (outcome.high_watermark, outcome.log_start_offset)
        if is_same and not outcome.records_size and not outcome.error_code:
            return False
        known.high_watermark, known.log_start_offset = outcome.high_watermark, outcome.log_start_offset
        if outcome.error_code:
            known.high_watermark = known.log_start_offset = -1
        if outcome.records_size:
            self._partitions[key] = self._partitions.pop(key)
        return True


class FetchSessions:
    """All sessions of one server."""

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
        # A repeated partition counts once, as in a session, because each costs a read and a watch.
        distinct = {(each.topic, each.partition.partition): each async for each in in_slices(listed(request))}
        wanted = list(distinct.values())
        if request.session_epoch == FINAL_EPOCH:
            return None, wanted
        opened = self._open(version, now, len(wanted))
        if opened is not None:
            await opened.update(wanted, (), in_slices)
        return opened, wanted

    def keep(self, session: FetchSession | None, request: FetchRequest) -> int:
        """The session id of a response without partitions: a session that this request has opened is closed again."""
        if session is None:
            return NO_SESSION
        if request.session_epoch > FULL_EPOCH:
            return session.session_id
        self._by_id.pop(session.session_id, None)
        return NO_SESSION

    async def _continue(self, request: FetchRequest, version: int, in_slices: SlicedIteration) -> FetchSession:
        session = self._by_id.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {request.session_id}; open a new one")
        if session.by_id != (version >= TOPIC_IDS_FROM):
            raise FetchSessionTopicIdError
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session epoch {request.session_epoch} is wrong; expected {session.epoch}"
            )
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        await session.update(listed(request), _forgotten(request), in_slices)
        if len(session) > SESSION_PARTITIONS_MAX:
            self._by_id.pop(session.session_id, None)
            raise FetchSessionIdNotFound(
                f"a fetch session may have {SESSION_PARTITIONS_MAX} partitions; this request makes it {len(session)}"
            )
        return session

    def _open(self, version: int, now: float, partitions: int) -> FetchSession | None:
        if partitions > SESSION_PARTITIONS_MAX or not self._evict_unused(now):
            return None
        session_id = self._new_id()
        while session_id in self._by_id or session_id == NO_SESSION:
            session_id = self._new_id()
        session = FetchSession(session_id, by_id=version >= TOPIC_IDS_FROM)
        session.last_used = now
        self._by_id[session_id] = session
        return session

    def _evict_unused(self, now: float) -> bool:
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
