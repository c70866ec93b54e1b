"""Share sessions: a member names its partitions once to each broker, and later only the changes.

ShareFetch and ShareAcknowledge of a member use one session. Epoch 0 opens it, -1 closes it, and n must be the epoch
that the session expects. A session belongs to the connection of its last request, and ends with it: then the records
that the member has acquired are released at once, and nothing waits for the end of their locks.
"""

from collections.abc import Iterable
from uuid import UUID

from tidemill.model.errors import InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound
from tidemill.servers.kafka.api import ConnectionIdentity

OPEN_EPOCH = 0
FINAL_EPOCH = -1
PARTITIONS_MAX = 10_000
_EPOCH_MAX = 2**31 - 1

MemberKey = tuple[str, str]
Place = tuple[UUID, int]


class ShareSession:
    """The partitions of one member on this broker, in the order in which they are served."""

    def __init__(self, key: MemberKey) -> None:
        self.key = key
        self.epoch = 1
        self.connection: ConnectionIdentity | None = None
        self._partitions: dict[Place, None] = {}

    def update(self, added: Iterable[Place], forgotten: Iterable[Place]) -> None:
        """Apply the added and forgotten partitions of a request."""
        for place in forgotten:
            self._partitions.pop(place, None)
        for place in added:
            if len(self._partitions) < PARTITIONS_MAX:
                self._partitions.setdefault(place)

    def places(self) -> list[Place]:
        """The partitions; every request begins with another one, so that each gets its turn."""
        places = list(self._partitions)
        turn = self.epoch % len(places) if places else 0
        return places[turn:] + places[:turn]


class ShareSessions:
    """The share sessions of one server."""

    def __init__(self) -> None:
        self._sessions: dict[MemberKey, ShareSession] = {}

    def open(self, key: MemberKey, sessions_max: int) -> ShareSession:
        """A new session, which replaces the one that the member had."""
        if key not in self._sessions and len(self._sessions) >= sessions_max:
            raise ShareSessionLimitReached(f"the broker has {sessions_max} share sessions, its limit")
        session = self._sessions[key] = ShareSession(key)
        return session

    def next(self, key: MemberKey, epoch: int) -> ShareSession:
        """The session of a member that sends this epoch; it expects the next one then, unless the epoch is the last."""
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound("the broker has no share session of this member; open one with epoch 0")
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise InvalidShareSessionEpoch(f"share session epoch {epoch} is not the next one, {session.epoch} is")
            session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        return session

    def end(self, session: ShareSession) -> bool:
        """End a session, if the member has no newer one."""
        if self._sessions.get(session.key) is not session:
            return False
        del self._sessions[session.key]
        return True

    def has_group(self, group_id: str) -> bool:
        """Whether a member of a group has a session."""
        return any(group == group_id for group, _ in self._sessions)
