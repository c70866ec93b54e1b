"""Sessions belong to the principal that has opened them, and no principal can drop those of others."""

from itertools import count

import pytest

from tidemill.model.timeline_errors import UnknownSession
from tidemill.security.core.principal import user
from tidemill.servers.grpc.client_sessions import SESSIONS_MAX, SESSIONS_SHARE_MAX, ClientSessions
from tidemill.wire.grpc import timeline_pb2 as wire

PRODUCER = wire.HandshakeRequest(role=wire.ROLE_PRODUCER, timeline="later", id="shop")
CONSUMER = wire.HandshakeRequest(role=wire.ROLE_CONSUMER, timeline="later", id="worker")
ADA, EVE = user("ada"), user("eve")


def sessions() -> ClientSessions:
    numbers = count()
    return ClientSessions(lambda: str(next(numbers)))


@pytest.mark.parametrize("greeting", [PRODUCER, CONSUMER])
def test_a_stolen_id_is_useless(greeting: wire.HandshakeRequest) -> None:
    made = sessions()
    mine = made.open(ADA, greeting)
    assert made.producer(ADA, mine).timeline == "later"
    with pytest.raises(UnknownSession):
        made.producer(EVE, mine)
    with pytest.raises(UnknownSession):
        made.consumer(EVE, mine)


def test_a_principal_with_many_sessions_drops_its_own() -> None:
    made = sessions()
    mine = made.open(ADA, PRODUCER)
    opened = [made.open(EVE, PRODUCER) for _ in range(SESSIONS_MAX + 10)]
    assert made.producer(ADA, mine)
    with pytest.raises(UnknownSession):
        made.producer(EVE, opened[0])
    assert made.producer(EVE, opened[-1])


def test_with_many_principals_the_least_recently_used_session_is_dropped() -> None:
    made = sessions()
    first, second = made.open(ADA, PRODUCER), made.open(ADA, PRODUCER)
    others = SESSIONS_MAX // SESSIONS_SHARE_MAX + 1
    for number in range(others):
        for _ in range(SESSIONS_SHARE_MAX - 100):
            made.open(user(str(number)), PRODUCER)
        made.producer(ADA, second)
    assert made.producer(ADA, second)
    made.producer(ADA, first)
    assert len(made) <= SESSIONS_MAX
