"""gRPC calls with forged logins and metadata, next to an honest Kafka client. Nothing that they ask for happens."""

import base64
import os
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from tests.hostile.secured import AUDIENCE, ISSUER, SecuredBroker, secured_broker, unsigned
from tests.support.tokens import Issuer

from tidemill.wire.grpc import broker_pb2, timeline_pb2
from tidemill.wire.grpc.broker_pb2_grpc import BrokerServiceStub
from tidemill.wire.grpc.timeline_pb2_grpc import TimelineServiceStub

LIMIT_S = 30.0
SETTINGS = {"tidemill.grpc.security": "SASL_PLAINTEXT", "connection.failed.authentication.delay.ms": "1"}
METHODS: list[MethodDescriptor] = [
    method
    for service in (
        broker_pb2.DESCRIPTOR.services_by_name["BrokerService"],
        timeline_pb2.DESCRIPTOR.services_by_name["TimelineService"],
    )
    for method in service.methods
]
EVIL_ISSUER = Issuer("first")
OK = grpc.StatusCode.OK
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND

Metadata = Sequence[tuple[str, str | bytes]]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker(SETTINGS, {"grpc": "127.0.0.1:0", "timelines": "memory:"}) as started:
        before = started.state()
        with started.watched():
            yield started
        assert started.state() == before
        assert '"level": "error"' not in started.log_text()


@pytest.fixture(scope="module")
def channel(broker: SecuredBroker) -> Iterator[grpc.Channel]:
    host, port = broker.addresses["grpc"]
    with grpc.insecure_channel(f"{host}:{port}") as opened:
        yield opened


def send(channel: grpc.Channel, method: MethodDescriptor, data: bytes, metadata: Metadata) -> grpc.StatusCode:
    """The status of a call."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.client_streaming:
            list(channel.stream_stream(path)(iter([data]), timeout=LIMIT_S, metadata=metadata))
        else:
            channel.unary_unary(path)(data, timeout=LIMIT_S, metadata=metadata)
    except grpc.RpcError as error:
        return error.code()
    return OK


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


METADATA: dict[str, Metadata] = {
    "none": (),
    "empty": (("authorization", ""),),
    "only a scheme": (("authorization", "Basic"),),
    "no base64": (("authorization", "Basic !!!"),),
    "wrong password": (("authorization", basic("admin", "admin")),),
    "unknown user": (("authorization", basic("unknown", "password")),),
    "no password": (("authorization", basic("admin", "")),),
    "another scheme": (("authorization", 'Digest username="admin"'),),
    "unsigned token": (
        ("authorization", "Bearer " + unsigned({"alg": "none"}, {"sub": "admin", "exp": 9_999_999_999})),
    ),
    "token of another issuer": (("authorization", "Bearer " + EVIL_ISSUER.token("admin", iss=ISSUER, aud=AUDIENCE)),),
    "two logins": (("authorization", basic("admin", "a")), ("authorization", basic("admin", "b"))),
    "binary": (("authorization-bin", b"Basic YWRtaW46YWRtaW4="),),
    "user of a proxy": (("x-forwarded-user", "admin"), ("x-user", "admin"), ("x-remote-user", "admin")),
    "address of a proxy": (("x-forwarded-for", "127.0.0.1"), ("forwarded", "for=127.0.0.1")),
    "broker": (("tidemill-peer", "broker"),),
    "empty broker": (("tidemill-peer", ""),),
    "forged broker": (("tidemill-peer", base64.urlsafe_b64encode(os.urandom(200)).decode()),),
    "forged broker with claims": (("tidemill-peer", unsigned({"node": 0}, {"user": "User:admin"}, b"x" * 32)),),
    "two brokers": (("tidemill-peer", "a"), ("tidemill-peer", "b")),
    "a broker and a user": (("tidemill-peer", "a"), ("authorization", basic("admin", "b"))),
    "forwarded": (("tidemill-forwarded", "1"), ("tidemill-user", "admin"), ("tidemill-hops", "1")),
    "cookie": (("cookie", "tidemill-session=admin"),),
}


GUESSES = {"wrong password", "unknown user", "unsigned token", "token of another issuer"}


@pytest.mark.parametrize("metadata", METADATA)
def test_no_method_is_served_without_a_login(channel: grpc.Channel, metadata: str) -> None:
    # Wrong passwords and tokens are answered later and later.
    for method in METHODS[::6] if metadata in GUESSES else METHODS:
        assert send(channel, method, b"", METADATA[metadata]) == UNAUTHENTICATED, method.name


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_garbage_is_refused_before_it_is_read(channel: grpc.Channel, method: MethodDescriptor) -> None:
    """Without a login, the answer does not depend on the body."""
    for data in (b"", b"\xff" * 1_000, os.urandom(100_000)):
        assert send(channel, method, data, ()) == UNAUTHENTICATED


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_user_without_rights_gets_nothing(
    broker: SecuredBroker, channel: grpc.Channel, method: MethodDescriptor
) -> None:
    """An empty request and one that names a topic or a timeline of another user in its first field."""
    login = (("authorization", basic("mallory", broker.passwords["mallory"])),)
    for data in (b"", b"\x0a\x06honest"):
        code = send(channel, method, data, login)
        assert code not in {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
        if data and code is OK:
            assert method.name in {"Ping", "ListTopics", "ListTimelines", "ChooseBrokers"}


def test_an_unauthorized_user_changes_no_topic_and_no_timeline(broker: SecuredBroker, channel: grpc.Channel) -> None:
    login = (("authorization", basic("mallory", broker.passwords["mallory"])),)
    topics, timelines = BrokerServiceStub(channel), TimelineServiceStub(channel)
    for attempt in (
        lambda: topics.CreateTopic(broker_pb2.CreateTopicRequest(name="evil"), timeout=LIMIT_S, metadata=login),
        lambda: topics.DeleteTopic(broker_pb2.DeleteTopicRequest(name="honest"), timeout=LIMIT_S, metadata=login),
        lambda: timelines.CreateTimeline(
            timeline_pb2.CreateTimelineRequest(name="evil"), timeout=LIMIT_S, metadata=login
        ),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            attempt()
        assert caught.value.code() in {DENIED, NOT_FOUND}


def test_the_right_logins_are_accepted(broker: SecuredBroker, channel: grpc.Channel) -> None:
    """Otherwise everything above could be refused for another reason."""
    token = broker.issuer.token("admin", iss=ISSUER, aud=AUDIENCE)
    for login in (basic("admin", broker.passwords["admin"]), f"Bearer {token}"):
        answer = TimelineServiceStub(channel).ListTimelines(
            timeline_pb2.ListTimelinesRequest(), timeout=LIMIT_S, metadata=(("authorization", login),)
        )
        assert not answer.ByteSize()


@pytest.mark.parametrize("size", [10_000, 100_000, 1_000_000])
def test_large_metadata_is_refused(channel: grpc.Channel, size: int) -> None:
    code = send(channel, METHODS[0], b"", (("x-large", "a" * size),))
    assert code in {
        UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
    }


def test_many_wrong_logins(broker: SecuredBroker, channel: grpc.Channel) -> None:
    """A user who has logged in before is served meanwhile."""
    honest = (("authorization", basic("alice", broker.passwords["alice"])),)
    [listing] = [each for each in METHODS if each.name == "ListTimelines"]
    assert send(channel, listing, b"", honest) is OK
    with ThreadPoolExecutor(8) as attackers:
        guesses = [
            attackers.submit(send, channel, listing, b"", (("authorization", "Bearer " + "x" * number),))
            for number in range(1, 20)
        ]
        while not all(each.done() for each in guesses):
            assert send(channel, listing, b"", honest) is OK
        assert {each.result() for each in guesses} <= {UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE}


HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"
"""The begin of a connection: the preface and empty settings."""


def http2_frame(kind: int, stream: int, content: bytes, flags: int = 0) -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def resets(count: int) -> Iterator[bytes]:
    """Streams that are opened and reset at once (CVE-2023-44487)."""
    for number in range(1, 2 * count, 2):
        yield http2_frame(1, number, b"\x82", flags=5)
        yield http2_frame(3, number, b"\0\0\0\x08")


GARBAGE = {
    "Kafka": b"\0\0\0\x14\0\x12\0\0\0\0\0\0\0\x04test",
    "HTTP/1.1": b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "random": os.urandom(1_000),
    "preface cut off": HELLO[:20],
    "unknown frames": HELLO + http2_frame(255, 0, bytes(16)) * 100,
    "large frame": HELLO + b"\xff\xff\xff\x01\x04\0\0\0\x01",
    "bad compression": HELLO + http2_frame(1, 1, b"\xff" * 4, flags=5),
    "many resets": HELLO + b"".join(resets(2_000)),
    "many pings": HELLO + http2_frame(6, 0, b"abcdefgh") * 5_000,
    "many settings": HELLO + http2_frame(4, 0, b"") * 5_000,
    "headers without end": HELLO + http2_frame(1, 1, b"\x82") + http2_frame(9, 1, b"\0" * 1_000) * 500,
}


@pytest.mark.parametrize("data", GARBAGE)
def test_bytes_that_are_no_calls(broker: SecuredBroker, channel: grpc.Channel, data: str) -> None:
    """The server closes the connection, and serves others."""
    with socket.create_connection(broker.addresses["grpc"], LIMIT_S) as connection:
        try:
            connection.sendall(GARBAGE[data])
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass
        except ConnectionError:
            pass
    assert send(channel, METHODS[0], b"", ()) == UNAUTHENTICATED
