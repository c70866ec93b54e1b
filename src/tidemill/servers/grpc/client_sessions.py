"""Who has shaken hands: producers with their group, consumers with their terms.

A session is only memory: a broker that restarts has forgotten it and clients shake hands again. The number is bounded;
the one that was not used for the longest time is forgotten first.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.model.timeline_errors import BadHandshake, UnknownSession
from tidemill.servers.grpc.error_status import meaning
from tidemill.timelines.consumer import IN_FLIGHT_MAX, ConsumerTerms
from tidemill.timelines.core.lease import HOLDER_CHARS_MAX, LEASE_MS_MAX, LEASE_MS_MIN
from tidemill.timelines.core.message import check_group
from tidemill.timelines.core.timeline import refuse_kept
from tidemill.wire.grpc import timeline_pb2 as wire

SESSIONS_MAX = 10_000
IN_FLIGHT_DEFAULT = 100


@dataclass(frozen=True, slots=True)
class ClientSession:
    """One client of one timeline."""

    timeline: str
    group: str
    terms: ConsumerTerms | None


CONSUMES = {wire.ROLE_PRODUCER: False, wire.ROLE_CONSUMER: True}


class ClientSessions:
    """The sessions of a broker, the most recently used last."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._sessions: OrderedDict[str, ClientSession] = OrderedDict()

    def open(self, request: wire.HandshakeRequest) -> str:
        """Check what the client says of itself and give it a session."""
        if meaning("role", request.role, CONSUMES):
            refuse_kept(request.timeline)
            session = ClientSession(request.timeline, "", _terms(request))
        else:
            check_group(request.id)
            session = ClientSession(request.timeline, request.id, None)
        if len(self._sessions) >= SESSIONS_MAX:
            self._sessions.popitem(last=False)
        session_id = self._new_id()
        self._sessions[session_id] = session
        return session_id

    def producer(self, session_id: str) -> ClientSession:
        """The session of whoever schedules, cancels or moves."""
        session = self._sessions.get(session_id)
        if session is None:
            raise UnknownSession
        self._sessions.move_to_end(session_id)
        return session

    def consumer(self, session_id: str) -> tuple[str, ConsumerTerms]:
        """The timeline and the terms of a consumer."""
        session = self.producer(session_id)
        if session.terms is None:
            raise BadHandshake("a producer's session cannot work; shake hands as a consumer")
        return session.timeline, session.terms


def _terms(request: wire.HandshakeRequest) -> ConsumerTerms:
    if not 0 < len(request.id) <= HOLDER_CHARS_MAX or not request.id.isprintable():
        raise BadHandshake(f"a consumer's id must have 1 to {HOLDER_CHARS_MAX} printable characters")
    if len(request.rack) > HOLDER_CHARS_MAX or (request.rack and not request.rack.isprintable()):
        raise BadHandshake(f"a rack must have at most {HOLDER_CHARS_MAX} printable characters")
    if request.lease_ms and not LEASE_MS_MIN <= request.lease_ms <= LEASE_MS_MAX:
        raise BadHandshake(f"lease_ms = {request.lease_ms} must be between {LEASE_MS_MIN} and {LEASE_MS_MAX}")
    in_flight = request.max_in_flight or IN_FLIGHT_DEFAULT
    if not 1 <= in_flight <= IN_FLIGHT_MAX:
        raise BadHandshake(f"max_in_flight = {in_flight} must be between 1 and {IN_FLIGHT_MAX}")
    return ConsumerTerms(request.id, request.rack, request.lease_ms, in_flight, holds_back=request.holds_back)
