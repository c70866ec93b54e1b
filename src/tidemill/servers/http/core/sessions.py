"""The sessions of browsers: who has logged in, until when. Ids are kept as hashes; only the browser has the id itself.

A session ends at its expiry, after a time without requests, and when the credentials of its user change. Their number
is bounded, in all and for each user: the session that was used the longest time ago ends first.
"""

from collections.abc import Hashable
from hashlib import sha256
from typing import NamedTuple

IDLE_S = 3_600.0
"""A session without requests ends after this time."""
SESSIONS_MAX = 10_000
SESSIONS_PER_USER_MAX = 20


class BrowserSession(NamedTuple):
    """One session. `credentials` are those of the user at the login, compared for equality."""

    name: str
    credentials: object
    expires_s: float
    used_s: float


class SessionTable:
    """The sessions of one broker, in the order of their last use. Times are of a clock that cannot be set."""

    def __init__(
        self,
        lifetime_s: float,
        *,
        idle_s: float = IDLE_S,
        sessions_max: int = SESSIONS_MAX,
        per_user_max: int = SESSIONS_PER_USER_MAX,
    ) -> None:
        self._lifetime_s = lifetime_s
        self._idle_s = idle_s
        self._sessions_max = sessions_max
        self._per_user_max = per_user_max
        self._sessions: dict[Hashable, BrowserSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, session_id: str, name: str, credentials: object, now_s: float) -> None:
        """Keep a new session. The id must be new and random."""
        self.sweep(now_s)
        own = [key for key, each in self._sessions.items() if each.name == name]
        for key in own[: len(own) - self._per_user_max + 1] if len(own) >= self._per_user_max else ():
            del self._sessions[key]
        while len(self._sessions) >= self._sessions_max:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_key(session_id)] = BrowserSession(name, credentials, now_s + self._lifetime_s, now_s)

    def use(self, session_id: str, now_s: float) -> BrowserSession | None:
        """The session with this id, which counts as used now; None if there is none, or if it has ended."""
        key = _key(session_id)
        found = self._sessions.pop(key, None)
        if found is None or self._is_over(found, now_s):
            return None
        self._sessions[key] = used = found._replace(used_s=now_s)
        return used

    def find(self, session_id: str, now_s: float) -> BrowserSession | None:
        """The session with this id, which does not count as used; None if there is none, or if it has ended."""
        found = self._sessions.get(_key(session_id))
        return None if found is None or self._is_over(found, now_s) else found

    def end(self, session_id: str) -> None:
        """End a session. Does nothing if there is none."""
        self._sessions.pop(_key(session_id), None)

    def sweep(self, now_s: float) -> None:
        """Forget the sessions that are over."""
        over = [key for key, each in self._sessions.items() if self._is_over(each, now_s)]
        for key in over:
            del self._sessions[key]

    def _is_over(self, session: BrowserSession, now_s: float) -> bool:
        return now_s >= session.expires_s or now_s - session.used_s >= self._idle_s


def _key(session_id: str) -> Hashable:
    return sha256(session_id.encode("utf-8", "surrogatepass")).digest()
