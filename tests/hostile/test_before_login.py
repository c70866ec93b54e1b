"""Requests without a login: every API is refused, and nothing changes. An honest client is served all the time."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.hostile.frames import SIZE, Peer, frame, request, unknown_request
from tests.hostile.logins import SASL_AUTHENTICATE, SASL_HANDSHAKE, Scram, authenticate, handshake, plain
from tests.hostile.secured import SecuredBroker, secured_broker
from tests.support.guarded_server import DENIALS, codes

from tidemill.servers.kafka.api_table import standard_table
from tidemill.servers.kafka.connection import LOGIN_APIS

APIS = {api.key: max(api.versions[0], api.served_from) for api in standard_table().listed()}
KEYS = [key for key in range(96) if key not in LOGIN_APIS]
UNKNOWN_KEYS = [96, 127, 255, 1_000, 32_767, -1, -32_768]
RECEIVE_BYTES_MAX = 65_536
"""The default of sasl.server.max.receive.size."""
EVIL = {"name": "evil", "num_partitions": 1, "replication_factor": 1}
ACL = {
    "resource_type": 2,
    "resource_name": "*",
    "resource_pattern_type": 3,
    "principal": "User:ANONYMOUS",
    "host": "*",
    "operation": 2,
    "permission_type": 3,
}
CREDENTIAL = {"name": "admin", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16, "salted_password": b"p" * 32}
RESOURCE = {"resource_type": 4, "resource_name": "", "configs": [{"name": "authorizer", "value": "none"}]}
INCREMENT = {**RESOURCE, "configs": [{"name": "super.users", "config_operation": 0, "value": "User:ANONYMOUS"}]}
CHANGES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "create topic": (19, 5, {"topics": [EVIL], "timeout": 1_000}),
    "delete topic": (20, 5, {"topic_names": ["honest"], "timeout": 1_000}),
    "create partitions": (37, 1, {"topics": [{"name": "honest", "count": 9}], "timeout": 1_000}),
    "create ACL": (30, 3, {"creations": [ACL]}),
    "set password": (51, 0, {"deletions": [], "upsertions": [CREDENTIAL]}),
    "delete user": (51, 0, {"deletions": [{"name": "admin", "mechanism": 1}], "upsertions": []}),
    "alter configs": (33, 1, {"resources": [RESOURCE]}),
    "increment configs": (44, 1, {"resources": [INCREMENT]}),
    "unregister broker": (64, 0, {"broker_id": 0}),
    "create by metadata": (3, 9, {"topics": [{"name": "evil"}], "allow_auto_topic_creation": True}),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker() as started:
        before = started.state()
        with started.watched():
            yield started
        assert started.state() == before, "an attack without a login has changed something"


def is_closed(peer: Peer) -> bool:
    """Whether the broker closes the connection without an answer."""
    return peer.receive() is None


@pytest.mark.parametrize("key", [*KEYS, *UNKNOWN_KEYS])
def test_an_api_before_the_login_is_refused(broker: SecuredBroker, key: int) -> None:
    with broker.peer() as peer:
        peer.send(request(key, APIS[key], {}) if key in APIS else unknown_request(key, os.urandom(40)))
        assert is_closed(peer)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("listener", ["CLEAR", "LOGIN"])
def test_a_change_before_the_login_is_refused(broker: SecuredBroker, change: str, listener: str) -> None:
    with broker.peer(listener) as peer:
        peer.send(request(*CHANGES[change]))
        assert is_closed(peer)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_the_middle_of_a_login_is_refused(broker: SecuredBroker, change: str) -> None:
    """The user exists and the first step was right; there is no proof yet."""
    with broker.peer() as peer:
        assert not handshake(peer, "SCRAM-SHA-256").error_code
        assert not authenticate(peer, Scram("admin", "").first()).error_code
        peer.send(request(*CHANGES[change]))
        assert is_closed(peer)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_sent_with_a_wrong_login_is_refused(broker: SecuredBroker, change: str) -> None:
    """All requests arrive at once, so the change waits while the broker checks the password."""
    with broker.peer() as peer:
        peer.send(
            request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
            + request(SASL_AUTHENTICATE, 2, {"auth_bytes": plain("admin", "wrong")})
            + request(*CHANGES[change])
        )
        assert peer.receive() is not None
        assert peer.receive() is not None
        assert is_closed(peer)


@pytest.mark.parametrize("change", CHANGES)
def test_a_client_without_a_certificate_may_change_nothing(broker: SecuredBroker, change: str) -> None:
    """The listener takes clients with and without a certificate; those without are ANONYMOUS and have no rights."""
    with broker.peer("OPTIONAL") as peer:
        answer = peer.ask(*CHANGES[change])
        assert codes(answer) & DENIALS, answer


@pytest.mark.parametrize("listener", ["CLEAR", "LOGIN"])
@pytest.mark.parametrize("size", [RECEIVE_BYTES_MAX + 1, 1 << 20, 100 << 20, (1 << 31) - 1, -1, -(1 << 31), 0, 7])
def test_a_frame_of_this_size_is_refused_before_its_content_arrives(
    broker: SecuredBroker, size: int, listener: str
) -> None:
    with broker.peer(listener) as peer:
        peer.send(SIZE.pack(size) + b"\0" * max(0, min(size, 64)))
        assert is_closed(peer)


def test_the_largest_frame_before_the_login_is_read(broker: SecuredBroker) -> None:
    with broker.peer() as peer:
        peer.send(frame(SASL_HANDSHAKE, 1, (60_000).to_bytes(2, "big", signed=False)[:2] + b"x" * 60_000))
        assert is_closed(peer)  # a length of 60000 is negative as a signed number
        second = broker.peer()
    with second:
        name = b"x" * 32_000
        second.send(frame(SASL_HANDSHAKE, 1, len(name).to_bytes(2, "big") + name))
        assert second.receive() is not None


def test_a_login_makes_frames_larger_and_nothing_else_does(broker: SecuredBroker) -> None:
    large = {"topics": [{"name": "x" * 200} for _ in range(500)]}
    with broker.logged_in("alice") as peer:
        assert len(peer.ask(3, 9, large).topics) >= 1
    with broker.peer() as peer:
        assert not handshake(peer, "SCRAM-SHA-256").error_code
        peer.send(SIZE.pack(RECEIVE_BYTES_MAX + 1))
        assert is_closed(peer)


def test_api_versions_before_the_login_says_little(broker: SecuredBroker) -> None:
    with broker.peer() as peer:
        for version in (0, 1, 2, 3):
            answer = peer.ask(18, version, {"client_software_name": "a", "client_software_version": "1"})
            assert not answer.error_code
            assert broker.passwords["admin"] not in str(answer)


def test_many_api_versions_before_the_login_are_answered_in_order(broker: SecuredBroker) -> None:
    with broker.peer() as peer:
        peer.send(b"".join(frame(18, 0, b"", number) for number in range(500)))
        for number in range(500):
            answer = peer.receive()
            assert answer is not None
            assert int.from_bytes(answer[:4], "big") == number


def test_a_disconnect_in_every_step_of_a_login(broker: SecuredBroker) -> None:
    exchange = Scram("alice", broker.passwords["alice"])
    for steps in range(4):
        with broker.peer() as peer:
            if steps > 0:
                handshake(peer, "SCRAM-SHA-256")
            if steps > 1:
                challenge = authenticate(peer, exchange.first())
            if steps > 2:
                peer.send(request(SASL_AUTHENTICATE, 2, {"auth_bytes": exchange.final(challenge.auth_bytes)}))
    broker.logged_in("alice").close()
