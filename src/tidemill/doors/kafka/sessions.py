"""Fetch sessions (KIP-227): a consumer names its partitions once, then only what changed.

The rules, by the session id and epoch of a request: epoch -1 asks without a session (and ends the one it names),
epoch 0 asks for everything and opens a new session, epoch n > 0 changes the session and asks for all that is in it;
n must be the one that the session expects. An answer within a session leaves out partitions about which there
is nothing new. A session is a cache: there are at most SESSIONS_MAX, one that was not used for a while makes room,
and when there is no room the answer simply names no session and the client goes on without.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

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


class Wanted(NamedTuple):
    """One partition that a fetch asks for."""

    topic: TopicKey
    partition: FetchPartition


class _Told:
    """What the client last heard about a partition."""

    __slots__ = ("high_watermark", "log_start_offset", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1


class Session:
    """The partitions of one consumer, in the order in which they are served."""

    def __init__(self, session_id: int, *, by_id: bool) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.last_used = 0.0
        self._told: dict[Key, _Told] = {}

    def __len__(self) -> int:
        return len(self._told)

    def update(self, request: FetchRequest) -> None:
        """Take in what the request adds, changes and forgets."""
        for wanted in listed(request):
            key = (wanted.topic, wanted.partition.partition)
            known = self._told.get(key)
            if known is None:
                self._told[key] = _Told(wanted)
            else:
                known.wanted = wanted
        for topic, partitions in request.forgotten:
            for index in partitions:
                self._told.pop((topic, index), None)

    def wanted(self) -> list[Wanted]:
        """All partitions of the session."""
        return [told.wanted for told in self._told.values()]

    def news(self, outcomes: Iterable[tuple[TopicKey, FetchOutcome]]) -> Iterator[tuple[TopicKey, FetchOutcome]]:
        """The outcomes that say something new; what gave records goes to the end of the row, so all get their turn."""
        for topic, outcome in outcomes:
            key = (topic, outcome.partition)
            told = self._told.get(key)
            if told is None:
                continue
            heard = (told.high_watermark, told.log_start_offset) == (outcome.high_watermark, outcome.log_start_offset)
            if heard and not outcome.records_size and not outcome.error_code:
                continue
            told.high_watermark, told.log_start_offset = outcome.high_watermark, outcome.log_start_offset
            if outcome.error_code:
                told.high_watermark = told.log_start_offset = -1
            if outcome.records_size:
                self._told[key] = self._told.pop(key)
            yield topic, outcome


class Sessions:
    """All sessions of one door."""

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self._by_id: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, request: FetchRequest, version: int, now: float) -> tuple[Session | None, list[Wanted]]:
        """The session of the request, if it has one, and the partitions that it asks for."""
        if request.session_epoch > FULL_EPOCH:
            session = self._continue(request, version)
            session.last_used = now
            return session, session.wanted()
        if request.session_id != NO_SESSION:
            self._by_id.pop(request.session_id, None)
        # A partition that is named twice counts once, as in a session: each one costs a read and a watch.
        wanted = list({(each.topic, each.partition.partition): each for each in listed(request)}.values())
        if request.session_epoch == FINAL_EPOCH:
            return None, wanted
        return self._open(request, version, now, len(wanted)), wanted

    def _continue(self, request: FetchRequest, version: int) -> Session:
        session = self._by_id.get(request.session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {request.session_id}")
        if session.by_id != (version >= TOPIC_IDS_FROM):
            raise FetchSessionTopicIdError
        if request.session_epoch != session.epoch:
            raise InvalidFetchSessionEpoch(f"epoch {request.session_epoch} where {session.epoch} is expected")
        session.update(request)
        session.epoch = session.epoch + 1 if session.epoch < _EPOCH_MAX else 1
        if len(session) > SESSION_PARTITIONS_MAX:
            del self._by_id[session.session_id]
            raise FetchSessionIdNotFound("the fetch session has too many partitions")
        return session

    def _open(self, request: FetchRequest, version: int, now: float, partitions: int) -> Session | None:
        if partitions > SESSION_PARTITIONS_MAX or not self._make_room(now):
            return None
        session_id = self._new_id()
        while session_id in self._by_id or session_id == NO_SESSION:
            session_id = self._new_id()
        session = Session(session_id, by_id=version >= TOPIC_IDS_FROM)
        session.update(request)
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


def listed(request: FetchRequest) -> Iterator[Wanted]:
    """The partitions that the request itself names."""
    for topic, partitions in request.topics:
        for partition in partitions:
            yield Wanted(topic, partition)
