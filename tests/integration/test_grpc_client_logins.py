"""The gRPC clients and commands against brokers with TLS and logins; and clients that guess passwords."""

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from secrets import token_bytes
from typing import Any

import grpc
import grpc.aio
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.support.certificates import Authority
from tests.support.command_line import CommandLine
from tests.support.etcd import running_etcd
from tests.support.password_users import set_password
from tests.support.tokens import Issuer
from tests.support.waiting import eventually, eventually_async

from tidemill import AsyncTimeline, Consumer, Message, Timeline, TopicProducer
from tidemill.client.kafka.errors import AuthenticationFailed, BrokerUnreachable
from tidemill.client.topics import DeliveryFailed
from tidemill.model.errors import GroupAuthorizationFailed, SaslAuthenticationFailed
from tidemill.model.timeline_errors import TimelineAuthorizationFailed, TimelineLoginFailed, Unreachable
from tidemill.security.core.peer_token import PeerCall, PeerClaims
from tidemill.security.core.principal import Principal, user
from tidemill.security.peers import PeerTokens
from tidemill.servers.grpc.login import PEER_KEY
from tidemill.testing import Broker
from tidemill.wire.grpc import broker_pb2 as streams
from tidemill.wire.grpc import broker_pb2_grpc, timeline_pb2_grpc
from tidemill.wire.grpc import timeline_pb2 as timelines

PASSWORD = "admin-password"
SECRET = "a secret of the cluster"
TIMEOUT_S = 20.0
TTL_MS = 2_000
GUESSES = 2_000


@pytest.fixture(scope="module")
def broker(authority: Authority, issuer: tuple[Issuer, str]) -> Iterator[Broker]:
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "sasl.oauthbearer.jwks.endpoint.url": issuer[1],
        "sasl.oauthbearer.expected.audience": "tidemill",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "super.users": "User:robot",
    }
    with Broker(settings=settings, flags={"timelines": "memory:"}, admin_password=PASSWORD) as running:
        kafka = admin(running, authority)
        set_password(kafka, "eve", "eve-password")
        yield running


def admin(broker: Broker, authority: Authority) -> AdminClient:
    login = settings(authority, "admin", PASSWORD)
    return AdminClient({"bootstrap.servers": broker.listener("SASL_SSL"), "log_level": 0, **login})


def settings(authority: Authority, name: str, password: str) -> dict[str, str]:
    """The settings of one login, for Kafka and gRPC."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority.path,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": name,
        "sasl.password": password,
    }


def token_settings(authority: Authority) -> dict[str, str]:
    return {"security.protocol": "SASL_SSL", "ssl.ca.location": authority.path, "sasl.mechanism": "OAUTHBEARER"}


# -- timelines ---------------------------------------------------------------------------------------------------------


def test_a_timeline_with_a_password(broker: Broker, authority: Authority) -> None:
    with Timeline(broker.grpc, "reminders", client=settings(authority, "admin", PASSWORD)) as timeline:
        timeline.create()
        timeline.schedule([Message(b"tea", due=time.time())])
        assert [lease.body for lease in taken(timeline, 1)] == [b"tea"]
    with Timeline(broker.grpc, "reminders", client=settings(authority, "eve", "eve-password")) as timeline:
        with pytest.raises(TimelineAuthorizationFailed, match="User:eve may not DESCRIBE TOPIC reminders"):
            timeline.describe()
        with pytest.raises(TimelineAuthorizationFailed):
            timeline.schedule([Message(b"tea", due=time.time())])
        with pytest.raises(TimelineAuthorizationFailed):
            next(timeline.work(idle_ms=1_000))
        assert timeline.timelines() == []


def taken(timeline: Timeline, count: int) -> list[Any]:
    found = []
    for lease in timeline.work(idle_ms=10_000):
        lease.complete()
        found.append(lease)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"sasl.password": "wrong"}, TimelineLoginFailed, "wrong"),
        ({"sasl.username": "mallory"}, TimelineLoginFailed, "wrong"),
        ({"security.protocol": "SSL"}, TimelineLoginFailed, "requires a login"),
        ({"ssl.ca.location": ""}, Unreachable, "not trusted"),
        ({"security.protocol": "PLAINTEXT"}, Unreachable, "if it uses TLS"),
    ],
)
def test_a_wrong_login_is_reported(
    broker: Broker, authority: Authority, changes: dict[str, str], error: type[Exception], words: str
) -> None:
    given = {**settings(authority, "admin", PASSWORD), **changes}
    if not given["ssl.ca.location"]:
        given["ssl.ca.location"] = Authority(Path(authority.path).parent / "foreign", "foreign").path
    with Timeline(broker.grpc, "reminders", client=given, connect_timeout_ms=1_000) as timeline:
        with pytest.raises(error, match=words) as caught:
            timeline.timelines()
        assert PASSWORD not in str(caught.value)
        assert "\n" not in str(caught.value)
        with pytest.raises(error):
            next(timeline.work(idle_ms=5_000))


def test_a_token_is_renewed_while_a_worker_is_connected(
    broker: Broker, authority: Authority, issuer: tuple[Issuer, str]
) -> None:
    fetched: list[str] = []

    def fetch() -> str:
        fetched.append(issuer[0].token("robot", aud="tidemill", exp=int(time.time()) + 3))
        return fetched[-1]

    with Timeline(broker.grpc, "robots", client=token_settings(authority), token=fetch) as timeline:
        timeline.create()
        timeline.schedule([Message(str(number).encode(), due=time.time() + number) for number in range(7)])
        assert sorted(lease.body for lease in taken(timeline, 7)) == [str(number).encode() for number in range(7)]
    assert len(fetched) > 1


def test_a_worker_ends_when_its_tokens_are_refused(
    broker: Broker, authority: Authority, issuer: tuple[Issuer, str]
) -> None:
    ends = int(time.time()) + 3
    with Timeline(
        broker.grpc,
        "robots",
        client=token_settings(authority),
        token=lambda: issuer[0].token("robot", aud="tidemill", exp=ends),
    ) as timeline:
        timeline.create()
        with pytest.raises(TimelineLoginFailed):
            next(timeline.work(idle_ms=30_000))


def test_a_token_that_cannot_be_fetched_is_an_error(broker: Broker, authority: Authority, tmp_path: Path) -> None:
    missing = {**token_settings(authority), "sasl.oauthbearer.token.endpoint.url": (tmp_path / "missing").as_uri()}
    with Timeline(broker.grpc, "robots", client=missing) as timeline:
        with pytest.raises(AuthenticationFailed, match="no token could be fetched"):
            timeline.describe()
        with pytest.raises(AuthenticationFailed):
            next(timeline.work(idle_ms=5_000))


# -- topics ------------------------------------------------------------------------------------------------------------


def test_topics_with_logins(broker: Broker, authority: Authority, issuer: tuple[Issuer, str]) -> None:
    mine = settings(authority, "admin", PASSWORD)
    with TopicProducer(broker.grpc, "orders", client=mine) as producer:
        for number in range(10):
            producer.send(str(number).encode())
    robot = token_settings(authority)
    fetch = lambda: issuer[0].token("robot", aud="tidemill")  # noqa: E731
    with Consumer(broker.grpc, group="g", topics="orders", client=robot, token=fetch) as consumer:
        found = [one.value for _ in range(10) if (one := consumer.next(int(TIMEOUT_S * 1_000)))]
    assert found == [str(number).encode() for number in range(10)]


def test_topics_without_rights_and_without_a_login(broker: Broker, authority: Authority) -> None:
    eve = settings(authority, "eve", "eve-password")
    with (
        Consumer(broker.grpc, group="g", topics="orders", client=eve) as consumer,
        pytest.raises(GroupAuthorizationFailed, match="User:eve may not"),
    ):
        consumer.next(int(TIMEOUT_S * 1_000))
    with (
        pytest.raises(DeliveryFailed, match="User:eve may not"),
        TopicProducer(broker.grpc, "orders", client=eve, create=False, delivery_timeout_ms=3_000) as producer,
    ):
        producer.send(b"tea")
    wrong = {**eve, "sasl.password": "wrong"}
    with (
        Consumer(broker.grpc, group="g", topics="orders", client=wrong) as consumer,
        pytest.raises(SaslAuthenticationFailed),
    ):
        consumer.next(int(TIMEOUT_S * 1_000))
    plain = {**eve, "security.protocol": "PLAINTEXT"}
    with (
        Consumer(broker.grpc, group="g", topics="orders", client=plain, connect_timeout_ms=500) as consumer,
        pytest.raises(BrokerUnreachable, match="if it uses TLS"),
    ):
        consumer.next(int(TIMEOUT_S * 1_000))


# -- commands ----------------------------------------------------------------------------------------------------------


def test_commands_take_one_file_of_settings(
    broker: Broker,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = CommandLine(broker.listener("SASL_SSL"), capsys, monkeypatch)
    monkeypatch.setenv("TIDEMILL_BOOTSTRAP_GRPC", broker.grpc)
    monkeypatch.setenv("SECRET", PASSWORD)
    file = tmp_path / "client.properties"
    lines = {**settings(authority, "admin", PASSWORD), "sasl.password": "${SECRET}", "bootstrap.servers": "x:1"}
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    command.fine("timeline", "create", "letters", "--client", str(file))
    command.fine("schedule", "letters", "tea", "--in", "1h", "--client", str(file))
    command.fine("topic", "list", "--client", str(file))
    monkeypatch.setenv("TIDEMILL_CLIENT", str(file))
    assert command.fine("timeline", "count", "letters").out.strip() == "1"
    shown = command.refused(1, "timeline", "count", "letters", "--client", "sasl.password=wrong")
    assert "wrong" in shown
    assert PASSWORD not in shown
    assert "sasl.mechanisn" in command.refused(2, "timeline", "count", "letters", "--client", "sasl.mechanisn=PLAIN")


# -- clusters ----------------------------------------------------------------------------------------------------------


class Cluster:
    """An overseer, which forwards every call, and a carrier. `alice` has no rights at first."""

    def __init__(self, overseer: Broker, carrier: Broker, authority: Authority) -> None:
        self.overseer, self.carrier, self.authority = overseer, carrier, authority
        self.kafka = admin(carrier, authority)
        self.set_password("alice", "alice-password")

    def set_password(self, name: str, password: str) -> None:
        change = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), password.encode()
        )
        self.kafka.alter_user_scram_credentials([change])[name].result(TIMEOUT_S)

    def grant(self, operation: AclOperation, name: str, user: str = "alice") -> None:
        binding = AclBinding(
            ResourceType.TOPIC,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        self.kafka.create_acls([binding])[binding].result(TIMEOUT_S)

    def channel(self, broker: Broker) -> grpc.Channel:
        return grpc.secure_channel(broker.grpc, grpc.ssl_channel_credentials(Path(self.authority.path).read_bytes()))


def login(name: str, password: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"),)


ADMIN, ALICE = login("admin", PASSWORD), login("alice", "alice-password")


@pytest.fixture(scope="module")
def cluster(authority: Authority) -> Iterator[Cluster]:
    with ExitStack() as stack:
        flags = {
            "coordination": stack.enter_context(running_etcd()).new_folder(),
            "session-ttl-ms": str(TTL_MS),
            "timelines": "memory:",
            "http": "none",
            "cluster-secret": SECRET,
        }
        broker_settings = {
            "listeners": "SASL_SSL://127.0.0.1:0",
            "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
            "ssl.truststore.location": authority.path,
        }
        carrier, overseer = (
            stack.enter_context(
                Broker(
                    process=True,
                    flags={**flags, "node-id": str(number), "roles": role},
                    settings=broker_settings,
                    admin_password=PASSWORD,
                )
            )
            for number, role in ((1, "carrier"), (2, "overseer"))
        )
        made = Cluster(overseer, carrier, authority)
        with made.channel(carrier) as channel:
            topic, timeline = streams.CreateTopicRequest(name="orders"), timelines.CreateTimelineRequest(name="later")
            broker_pb2_grpc.BrokerServiceStub(channel).CreateTopic(topic, metadata=ADMIN, timeout=TIMEOUT_S)
            timeline_pb2_grpc.TimelineServiceStub(channel).CreateTimeline(timeline, metadata=ADMIN, timeout=TIMEOUT_S)
        yield made


def test_forwarded_calls_have_the_rights_of_their_client(cluster: Cluster) -> None:
    with cluster.channel(cluster.overseer) as channel:
        stub = broker_pb2_grpc.BrokerServiceStub(channel)
        batch = streams.Batch(partition=0, records=[streams.Record(value=b"tea")])
        request = streams.ProduceRequest(topic="orders", batches=[batch])

        def produced(metadata: Any) -> str:
            return str(stub.Produce(request, metadata=metadata, timeout=TIMEOUT_S).outcomes[0].error)

        eventually(lambda: produced(ADMIN) == "")
        with pytest.raises(grpc.RpcError) as caught:
            produced(ALICE)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        cluster.grant(AclOperation.WRITE, "orders")
        eventually(lambda: _outcome(produced) == "")


def _outcome(produced: Any) -> str:
    try:
        return str(produced(ALICE))
    except grpc.RpcError as error:
        return str(error)


def test_the_receiver_checks_the_client_that_a_token_names(cluster: Cluster) -> None:
    """Even if the broker that forwards would not check it."""
    with cluster.channel(cluster.carrier) as channel:
        stub = broker_pb2_grpc.BrokerServiceStub(channel)
        request = streams.ConsumeRequest(topic="orders", partition=0)
        stub.Consume(request, metadata=(forwarded("Consume", request, user("admin")),), timeout=TIMEOUT_S)
        for principal in (user("alice"), user("mallory"), user("ANONYMOUS")):
            with pytest.raises(grpc.RpcError) as caught:
                stub.Consume(request, metadata=(forwarded("Consume", request, principal),), timeout=TIMEOUT_S)
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        forged = forwarded("Consume", request, user("admin"), secret=b"guessed")
        for metadata in ((forged,), (("tidemill-forwarded", "1"),), (forged, *ADMIN)):
            with pytest.raises(grpc.RpcError) as caught:
                stub.Consume(request, metadata=metadata, timeout=TIMEOUT_S)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def forwarded(method: str, request: Any, principal: Principal, secret: bytes = SECRET.encode()) -> tuple[str, str]:
    """The metadata of a call to broker 1 that broker 2 forwards."""
    tokens = PeerTokens(2, lambda: secret, token_bytes=token_bytes, clock_ms=lambda: time.time_ns() // 1_000_000)
    call = PeerCall(f"/tidemill.broker.v1.BrokerService/{method}", 1, request.SerializeToString())
    return PEER_KEY, tokens.sign(call, PeerClaims(2, principal, "127.0.0.1"))


def test_an_overseer_relays_timelines_with_the_rights_of_the_client(cluster: Cluster) -> None:
    with cluster.channel(cluster.overseer) as channel:
        stub = timeline_pb2_grpc.TimelineServiceStub(channel)
        stub.CreateTimeline(timelines.CreateTimelineRequest(name="relayed"), metadata=ADMIN, timeout=TIMEOUT_S)
        greeting = timelines.HandshakeRequest(role=timelines.ROLE_CONSUMER, timeline="later", id="worker")
        with pytest.raises(grpc.RpcError) as caught:
            stub.Handshake(greeting, metadata=ALICE, timeout=TIMEOUT_S)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        session = stub.Handshake(greeting, metadata=ADMIN, timeout=TIMEOUT_S).session
        start = timelines.WorkUp(start=timelines.WorkStart(session=session))
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.Work(iter([start]), metadata=ALICE, timeout=TIMEOUT_S))
        assert dict(caught.value.trailing_metadata())["tidemill-error"] == "UnknownSession"
        assert next(stub.Work(iter([start]), metadata=ADMIN, timeout=TIMEOUT_S)).WhichOneof("what") == "ping"


async def read_to_the_end(call: Any) -> None:
    """Read until the call raises its status, which comes after the messages: an unread ping would hold it back."""
    while True:
        await call.read()


async def test_a_relayed_stream_ends_with_its_login(cluster: Cluster, credentials: grpc.ChannelCredentials) -> None:
    """Only the overseer knows the password: the carrier trusts the token of the overseer."""
    await asyncio.to_thread(cluster.set_password, "bob", "first")
    await asyncio.to_thread(cluster.grant, AclOperation.READ, "later", "bob")
    metadata = login("bob", "first")
    async with grpc.aio.secure_channel(cluster.overseer.grpc, credentials) as channel:
        stub: Any = timeline_pb2_grpc.TimelineServiceStub(channel)
        greeting = timelines.HandshakeRequest(role=timelines.ROLE_CONSUMER, timeline="later", id="bob")

        async def greeted() -> str:
            try:
                return str((await stub.Handshake(greeting, metadata=metadata)).session)
            except grpc.aio.AioRpcError:  # the brokers do not know the user or the ACL yet
                return ""

        await eventually_async(greeted)
        call = stub.Work(metadata=metadata)
        await call.write(timelines.WorkUp(start=timelines.WorkStart(session=await greeted())))
        assert (await call.read()).WhichOneof("what") == "ping"
        await asyncio.to_thread(cluster.set_password, "bob", "second")
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await asyncio.wait_for(read_to_the_end(call), TIMEOUT_S)
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_clients_reach_a_carrier_through_an_overseer(cluster: Cluster) -> None:
    mine = settings(cluster.authority, "admin", PASSWORD)
    with Timeline(cluster.overseer.grpc, "sooner", client=mine) as timeline:
        timeline.create()
        timeline.schedule([Message(b"tea", due=time.time())])
        assert [lease.body for lease in taken(timeline, 1)] == [b"tea"]


@pytest.fixture
def credentials(authority: Authority) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(Path(authority.path).read_bytes())


# -- guessed passwords -------------------------------------------------------------------------------------------------


async def test_guessed_passwords_do_not_disturb_an_honest_client(
    broker: Broker,
    authority: Authority,
    credentials: grpc.ChannelCredentials,
    record_property: Callable[[str, object], None],
) -> None:
    """All of them have one address, as behind a proxy. The honest client has logged in before."""
    mine = settings(authority, "admin", PASSWORD)
    async with AsyncTimeline(broker.grpc, "calm", client=mine) as timeline:
        await timeline.create()
        before = await latencies(timeline, 50)
        async with grpc.aio.secure_channel(broker.grpc, credentials) as channel:
            stub: Any = broker_pb2_grpc.BrokerServiceStub(channel)
            guesses = [asyncio.create_task(guess(stub, number)) for number in range(GUESSES)]
            during = await latencies(timeline, 200)
            outcomes = [each.result() for each in guesses if each.done()]
            for each in guesses:
                each.cancel()
            await asyncio.gather(*guesses, return_exceptions=True)
        after = await latencies(timeline, 50)
    found = {"before": p99(before), "during": p99(during), "after": p99(after), "answered": len(outcomes)}
    record_property("honest client, p99 ms", json.dumps(found))
    assert set(outcomes) <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE}
    assert grpc.StatusCode.UNAVAILABLE in outcomes
    assert p99(during) < 1_000, found


async def guess(stub: Any, number: int) -> grpc.StatusCode:
    try:
        await stub.ListTopics(streams.ListTopicsRequest(), metadata=login("admin", f"guess {number}"))
    except grpc.aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    raise AssertionError("a guessed password was accepted")


async def latencies(timeline: AsyncTimeline, count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        await timeline.schedule([Message(b"tea", due=time.time() + 3_600)])
        found.append((time.perf_counter() - began) * 1_000)
    return found


def p99(found: list[float]) -> float:
    return round(sorted(found)[int(len(found) * 0.99) - 1], 1)
