"""The sessions of clients after their handshake: producers with their group, consumers with their terms.

A session exists only in memory: after a restart of the broker, clients repeat the handshake. The number of sessions is
bounded; the least recently used one is dropped first.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from time import monotonic

from tidemill.model.timeline_errors import BadHandshake, UnknownSession
from tidemill.security.core.principal import Principal
from tidemill.servers.grpc.error_status import meaning
from tidemill.timelines.consumer import IN_FLIGHT_MAX, ConsumerTerms
from tidemill.timelines.core.lease import HOLDER_CHARS_MAX, LEASE_MS_MAX, LEASE_MS_MIN
from tidemill.timelines.core.message import check_group
from tidemill.timelines.core.message_queue import LeaseOrder
from tidemill.timelines.core.timeline import refuse_kept
from tidemill.wire.grpc import timeline_pb2 as wire

SESSIONS_MAX = 10_000
SESSIONS_SHARE_MAX = 1_000
"""A principal with this many sessions loses its own first, so that it cannot drop those of others."""
IN_FLIGHT_DEFAULT = 100
ACTIVE_S = 60.0
"""How long after its last call a producer counts as active."""


@dataclass(slots=True)
class ClientSession:
    """One client of one timeline. Only the principal that has opened a session can use it."""

    principal: Principal
    timeline: str
    group: str
    terms: ConsumerTerms | None
    used_s: float = 0.0


ORDERS = {
    wire.LEASE_ORDER_LEASE_END: LeaseOrder.LEASE_END,
    wire.LEASE_ORDER_DUE: LeaseOrder.DUE,
    wire.LEASE_ORDER_RANDOM: LeaseOrder.RANDOM,
}
CONSUMES = {wire.ROLE_PRODUCER: False, wire.ROLE_CONSUMER: True}


class ClientSessions:
    """The sessions of a broker, the most recently used last."""

    def __init__(self, new_id: Callable[[], str], clock_s: Callable[[], float] = monotonic) -> None:
        self._new_id = new_id
        self._clock_s = clock_s
        self._sessions: OrderedDict[str, ClientSession] = OrderedDict()

    def open(self, principal: Principal, request: wire.HandshakeRequest) -> str:
        """Check the handshake of a client and open a session."""
        if meaning("role", request.role, CONSUMES):
            refuse_kept(request.timeline)
            session = ClientSession(principal, request.timeline, "", _terms(request))
        else:
            check_group(request.id)
            session = ClientSession(principal, request.timeline, request.id, None)
        self._make_room(principal)
        session_id = self._new_id()
        session.used_s = self._clock_s()
        self._sessions[session_id] = session
        return session_id

    def __len__(self) -> int:
        return len(self._sessions)

    def _make_room(self, principal: Principal) -> None:
        """Drop the least recently used session when there are too many; of a principal that has many, its own."""
        if len(self._sessions) < SESSIONS_MAX:
            return
        mine = [each for each, session in self._sessions.items() if session.principal == principal]
        if len(mine) >= SESSIONS_SHARE_MAX:
            del self._sessions[mine[0]]
        else:
            self._sessions.popitem(last=False)

    def producer(self, principal: Principal, session_id: str) -> ClientSession:
        """Return the session of a client that schedules, cancels or moves messages."""
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            raise UnknownSession
        self._sessions.move_to_end(session_id)
        session.used_s = self._clock_s()
        return session

    def producers(self) -> int:
        """The number of all of them."""
        return sum(self.producers_by_timeline().values())

    def producers_by_timeline(self) -> dict[str, int]:
        """The number of producers of each timeline that have used their sessions recently."""
        oldest_s = self._clock_s() - ACTIVE_S
        recent = takewhile(lambda session: session.used_s >= oldest_s, reversed(self._sessions.values()))
        return dict(Counter(session.timeline for session in recent if session.terms is None))

    def consumer(self, principal: Principal, session_id: str) -> tuple[str, ConsumerTerms]:
        """Return the timeline and the terms of a consumer."""
        session = self.producer(principal, session_id)
        if session.terms is None:
            raise BadHandshake("a producer's session cannot lease messages; repeat the handshake as a consumer")
        return session.timeline, session.terms


def _terms(request: wire.HandshakeRequest) -> ConsumerTerms:
    if not 0 < len(request.id) <= HOLDER_CHARS_MAX or not request.id.isprintable():
        raise BadHandshake(f"the consumer id must have 1 to {HOLDER_CHARS_MAX} printable characters")
    if len(request.rack) > HOLDER_CHARS_MAX or (request.rack and not request.rack.isprintable()):
        raise BadHandshake(f"the rack must have at most {HOLDER_CHARS_MAX} printable characters")
    if request.lease_ms and not LEASE_MS_MIN <= request.lease_ms <= LEASE_MS_MAX:
        raise BadHandshake(f"lease_ms is {request.lease_ms}; it must be {LEASE_MS_MIN} to {LEASE_MS_MAX}")
    in_flight = request.max_in_flight or IN_FLIGHT_DEFAULT
    if not 1 <= in_flight <= IN_FLIGHT_MAX:
        raise BadHandshake(f"max_in_flight is {in_flight}; it must be 1 to {IN_FLIGHT_MAX}")
    order = meaning("order", request.order, ORDERS)
    return ConsumerTerms(
        request.id, request.rack, request.lease_ms, in_flight, holds_back=request.holds_back, order=order
    )
