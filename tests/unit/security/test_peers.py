"""Brokers of one cluster accept each other's calls, each once."""

import pytest

from tidemill.security.core.peer_token import PeerCall, PeerClaims, PeerTokenRejected
from tidemill.security.core.principal import user
from tidemill.security.peers import PeerTokens

PURPOSE = "/tidemill.v1.BrokerService/Produce"
CLAIMS = PeerClaims(1, user("ada"), "10.0.0.7")


def broker(node_id: int, secret: bytes = b"secret", run: int = 0) -> PeerTokens:
    return PeerTokens(
        node_id, lambda: secret, token_bytes=lambda count: bytes([node_id, run] * (count // 2)), clock_ms=lambda: 1_000
    )


def test_a_call_is_accepted_once_and_by_its_receiver() -> None:
    one, two, three = broker(1), broker(2), broker(3)
    token = one.sign(PeerCall(PURPOSE, 2, b"body"), CLAIMS)
    with pytest.raises(PeerTokenRejected, match="not valid here"):
        three.check(PURPOSE, b"body", token)
    assert two.check(PURPOSE, b"body", token) == CLAIMS
    with pytest.raises(PeerTokenRejected, match="used before"):
        two.check(PURPOSE, b"body", token)
    assert two.check(PURPOSE, b"body", one.sign(PeerCall(PURPOSE, 2, b"body"), CLAIMS)) == CLAIMS


def test_a_broker_that_has_restarted_is_accepted() -> None:
    two = broker(2)
    for run in range(3):
        one = broker(1, run=run)
        assert two.check(PURPOSE, b"", one.sign(PeerCall(PURPOSE, 2, b""), CLAIMS)) == CLAIMS


def test_a_broker_of_another_cluster_is_refused() -> None:
    with pytest.raises(PeerTokenRejected):
        broker(2).check(PURPOSE, b"", broker(1, b"other").sign(PeerCall(PURPOSE, 2, b""), CLAIMS))


def test_a_refused_token_uses_up_no_number() -> None:
    one, two = broker(1), broker(2)
    token = one.sign(PeerCall(PURPOSE, 2, b"body"), CLAIMS)
    with pytest.raises(PeerTokenRejected):
        two.check(PURPOSE, b"other body", token)
    assert two.check(PURPOSE, b"body", token) == CLAIMS
