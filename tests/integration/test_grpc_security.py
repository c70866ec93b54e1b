"""The gRPC server with TLS, logins and ACLs: who is let in, and what each method needs."""

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import grpc
import grpc.aio
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from confluent_kafka.admin import ResourceType as KafkaResourceType
from tests.support.certificates import Authority
from tests.support.password_users import set_password
from tests.support.tokens import Issuer
from tests.support.waiting import eventually, eventually_async

from tidemill.broker.health import Readers
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.grpc.authorization_table import AUTHORIZATION
from tidemill.testing import Broker
from tidemill.wire.grpc import broker_pb2 as streams
from tidemill.wire.grpc import broker_pb2_grpc, timeline_pb2_grpc
from tidemill.wire.grpc import timeline_pb2 as timelines

TIMEOUT_S = 20.0
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
SERVICES = (
    streams.DESCRIPTOR.services_by_name["BrokerService"],
    timelines.DESCRIPTOR.services_by_name["TimelineService"],
)
Right = tuple[Operation, ResourceType, str]


@pytest.fixture(scope="module")
def broker(authority: Authority, issuer: tuple[Issuer, str]) -> Iterator[Broker]:
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "sasl.oauthbearer.jwks.endpoint.url": issuer[1],
        "sasl.oauthbearer.expected.audience": "tidemill",
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(settings=settings, flags={"timelines": "memory:"}, admin_password="admin-password") as running:
        yield running


class Site:
    """A broker with the user `alice`, whose rights are set by the tests, and the super user `admin`."""

    def __init__(self, broker: Broker, authority: Authority) -> None:
        self.broker, self.authority = broker, authority
        self.kafka = AdminClient(
            {
                "bootstrap.servers": broker.listener("SASL_SSL"),
                "security.protocol": "sasl_ssl",
                "ssl.ca.location": authority.path,
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "admin",
                "sasl.password": "admin-password",
            }
        )
        self.granted: list[AclBinding] = []
        set_password(self.kafka, "alice", "alice-password")

    def remove(self, name: str) -> None:
        deletion = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)
        self.kafka.alter_user_scram_credentials([deletion])[name].result(TIMEOUT_S)

    def grant(self, *rights: Right, user: str = "alice") -> None:
        """Give the user exactly these rights."""
        if self.granted:
            for each in self.kafka.delete_acls([_filter(binding) for binding in self.granted]).values():
                each.result(TIMEOUT_S)
        self.granted = [_binding(user, *right) for right in rights]
        if self.granted:
            for made in self.kafka.create_acls(self.granted).values():
                made.result(TIMEOUT_S)

    @contextmanager
    def channel(self, **options: Any) -> Iterator[grpc.Channel]:
        with grpc.secure_channel(self.broker.grpc, self.credentials(**options)) as channel:
            yield channel

    def credentials(self, certificate: str | None = None) -> grpc.ChannelCredentials:
        own = None if certificate is None else Path(certificate).read_bytes()
        return grpc.ssl_channel_credentials(Path(self.authority.path).read_bytes(), own, own)

    def ask(self, method: str, request: Any, login: str | None = None) -> Any:
        with self.channel() as channel:
            return ask(channel, method, request, login or basic("alice", "alice-password"))

    def as_admin(self, method: str, request: Any) -> Any:
        return self.ask(method, request, basic("admin", "admin-password"))


@pytest.fixture(scope="module")
def site(broker: Broker, authority: Authority) -> Site:
    made = Site(broker, authority)
    for name in ("orders", "other"):
        made.as_admin("BrokerService/CreateTopic", streams.CreateTopicRequest(name=name))
        made.as_admin("TimelineService/CreateTimeline", timelines.CreateTimelineRequest(name=f"t-{name}"))
    batch = streams.Batch(partition=0, records=[streams.Record(value=b"tea")])
    made.as_admin("BrokerService/Produce", streams.ProduceRequest(topic="orders", batches=[batch]))
    return made


def basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def ask(channel: grpc.Channel, method: str, request: Any, login: str | None) -> Any:
    service, _, name = method.partition("/")
    stubs = {
        "BrokerService": broker_pb2_grpc.BrokerServiceStub,
        "TimelineService": timeline_pb2_grpc.TimelineServiceStub,
    }
    metadata = () if login is None else (("authorization", login),)
    made = getattr(stubs[service](channel), name)
    if name == "Work":
        return next(made(iter([request]), metadata=metadata, timeout=TIMEOUT_S))
    return made(request, metadata=metadata, timeout=TIMEOUT_S)


def _binding(user: str, operation: Operation, resource_type: ResourceType, name: str) -> AclBinding:
    kind = KafkaResourceType.BROKER if resource_type is CLUSTER else getattr(KafkaResourceType, resource_type.name)
    return AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        getattr(AclOperation, operation.name),
        AclPermissionType.ALLOW,
    )


def _filter(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def status(caught: "pytest.ExceptionInfo[grpc.RpcError]") -> grpc.StatusCode:
    error = caught.value
    assert "\n" not in error.details()
    assert "alice-password" not in error.details()
    code: grpc.StatusCode = error.code()
    return code


# -- logins ------------------------------------------------------------------------------------------------------------


def test_a_password_and_a_token_log_in(site: Site, issuer: tuple[Issuer, str]) -> None:
    site.grant((Operation.DESCRIBE, TOPIC, "orders"))
    token = f"Bearer {issuer[0].token('alice', aud='tidemill')}"
    for login in (basic("alice", "alice-password"), token, token.replace("Bearer", "bearer")):
        found = site.ask("BrokerService/ListTopics", streams.ListTopicsRequest(), login)
        assert [each.name for each in found.topics] == ["orders"]


@pytest.mark.parametrize("method", ["BrokerService/ListTopics", "TimelineService/Work"])
def test_other_logins_are_refused(site: Site, issuer: tuple[Issuer, str], method: str) -> None:
    request = streams.ListTopicsRequest() if method.endswith("Topics") else timelines.WorkUp()
    foreign = Issuer("one")
    now = int(time.time())
    wrong = [
        None,
        basic("alice", "wrong"),
        basic("mallory", "alice-password"),
        "Basic",
        "Digest abc",
        f"Bearer {issuer[0].token('alice', aud='other')}",
        f"Bearer {issuer[0].token('alice', aud='tidemill', iat=now - 9000, exp=now - 3600)}",
        f"Bearer {foreign.token('alice', aud='tidemill')}",
        "Bearer " + "x" * 20_000,
    ]
    with site.channel() as channel:
        for login in wrong:
            with pytest.raises(grpc.RpcError) as caught:
                ask(channel, method, request, login)
            assert status(caught) is grpc.StatusCode.UNAUTHENTICATED, login
        service = broker_pb2_grpc.BrokerServiceStub(channel)
        twice = (("authorization", basic("alice", "alice-password")),) * 2
        with pytest.raises(grpc.RpcError) as caught:
            service.ListTopics(streams.ListTopicsRequest(), metadata=twice)
        assert status(caught) is grpc.StatusCode.UNAUTHENTICATED


def test_the_body_of_a_call_is_received_after_the_login(site: Site) -> None:
    body = b"x" * (60 * 1024 * 1024)
    batch = streams.Batch(partition=0, records=[streams.Record(value=body)])
    with pytest.raises(grpc.RpcError) as caught:
        site.ask("BrokerService/Produce", streams.ProduceRequest(topic="orders", batches=[batch]), basic("a", "b"))
    assert status(caught) is grpc.StatusCode.UNAUTHENTICATED


def test_a_plain_client_is_refused(site: Site) -> None:
    with grpc.insecure_channel(site.broker.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        ask(channel, "BrokerService/ListTopics", streams.ListTopicsRequest(), basic("alice", "alice-password"))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_changed_password_and_a_removed_user_count_at_once(site: Site) -> None:
    set_password(site.kafka, "carol", "first")
    request = streams.ListTopicsRequest()
    site.ask("BrokerService/ListTopics", request, basic("carol", "first"))
    set_password(site.kafka, "carol", "second")
    with pytest.raises(grpc.RpcError) as caught:
        site.ask("BrokerService/ListTopics", request, basic("carol", "first"))
    assert status(caught) is grpc.StatusCode.UNAUTHENTICATED
    site.ask("BrokerService/ListTopics", request, basic("carol", "second"))
    site.remove("carol")
    with pytest.raises(grpc.RpcError):
        site.ask("BrokerService/ListTopics", request, basic("carol", "second"))


# -- rights ------------------------------------------------------------------------------------------------------------


def test_every_method_has_a_row_and_every_row_a_method() -> None:
    methods = {f"{service.name}/{method.name}" for service in SERVICES for method in service.methods}
    assert methods == set(AUTHORIZATION)


class MethodCase(NamedTuple):
    """A call, and the rights that it needs, each of them.

    `shows`: what a reply with these rights has. `has_no_member`: the call names a member of a group that does not
    exist, so it fails after the rights are checked.
    """

    method: str
    request: Callable[[Site], Any]
    rights: tuple[Right, ...]
    shows: Callable[[Any], Any] | None = None
    label: str = ""
    has_no_member: bool = False


def producer(site: Site) -> str:
    """A producer's session of alice, who has no rights afterwards."""
    return session(site, timelines.ROLE_PRODUCER, Operation.WRITE)


def consumer(site: Site) -> str:
    return session(site, timelines.ROLE_CONSUMER, Operation.READ)


def session(site: Site, role: timelines.Role, operation: Operation) -> str:
    site.grant((operation, TOPIC, "t-orders"))
    request = timelines.HandshakeRequest(role=role, timeline="t-orders", id="me")
    opened = str(site.ask("TimelineService/Handshake", request).session)
    site.grant()
    return opened


def create_timeline(name: str, **settings: str) -> Callable[[Site], Any]:
    return lambda _: timelines.CreateTimelineRequest(name=name, settings=settings)


READ_GROUP: Right = (Operation.READ, GROUP, "g")
TEA = streams.Batch(partition=0, records=[streams.Record(value=b"tea")])
BODY = timelines.NewMessage(id="m", body=b"tea", due_ms=4_000_000_000_000)
MEMBER: dict[str, Any] = {"group": "g", "member_id": "m", "member_epoch": 1}
DEAD = {"max_attempts": "2", "dead_letter": "timeline:t-dead"}
CASES = [
    MethodCase(
        "BrokerService/CreateTopic",
        lambda _: streams.CreateTopicRequest(name="new"),
        ((Operation.CREATE, TOPIC, "new"),),
    ),
    MethodCase(
        "BrokerService/CreateTopic",
        lambda _: streams.CreateTopicRequest(name="new-too"),
        ((Operation.CREATE, CLUSTER, CLUSTER_NAME),),
        label="cluster",
    ),
    MethodCase(
        "BrokerService/DeleteTopic",
        lambda _: streams.DeleteTopicRequest(name="new"),
        ((Operation.DELETE, TOPIC, "new"),),
    ),
    MethodCase(
        "BrokerService/ListTopics",
        lambda _: streams.ListTopicsRequest(),
        ((Operation.DESCRIBE, TOPIC, "orders"),),
        lambda reply: [each.name for each in reply.topics],
    ),
    MethodCase(
        "BrokerService/GetMetadata",
        lambda _: streams.GetMetadataRequest(topics=["orders", "other", "missing"]),
        ((Operation.DESCRIBE, TOPIC, "orders"),),
    ),
    MethodCase(
        "BrokerService/GetMetadata",
        lambda _: streams.GetMetadataRequest(),
        ((Operation.DESCRIBE, TOPIC, "orders"),),
        lambda reply: [each.name for each in reply.topics],
        label="all",
    ),
    MethodCase(
        "BrokerService/Replicate",
        lambda _: streams.ReplicateRequest(),
        ((Operation.DESCRIBE, TOPIC, "orders"),),
        lambda reply: [each.topic for each in reply.partitions],
    ),
    MethodCase(
        "BrokerService/ChooseBrokers",
        lambda _: streams.ChooseBrokersRequest(topic="orders"),
        ((Operation.DESCRIBE, TOPIC, "orders"),),
    ),
    MethodCase(
        "BrokerService/ChooseBrokers",
        lambda _: streams.ChooseBrokersRequest(timeline="t-orders"),
        ((Operation.DESCRIBE, TOPIC, "t-orders"),),
        label="timeline",
    ),
    MethodCase(
        "BrokerService/InitProducer",
        lambda _: streams.InitProducerRequest(),
        ((Operation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME),),
    ),
    MethodCase(
        "BrokerService/InitProducer",
        lambda _: streams.InitProducerRequest(),
        ((Operation.WRITE, TOPIC, "orders"),),
        label="topic",
    ),
    MethodCase(
        "BrokerService/Produce",
        lambda _: streams.ProduceRequest(topic="orders", batches=[TEA]),
        ((Operation.WRITE, TOPIC, "orders"),),
    ),
    MethodCase(
        "BrokerService/Subscribe",
        lambda _: streams.SubscribeRequest(group="g", topics=["orders"], reset=streams.RESET_EARLIEST),
        (READ_GROUP, (Operation.DESCRIBE, TOPIC, "orders")),
    ),
    MethodCase(
        "BrokerService/Poll",
        lambda _: streams.PollRequest(**MEMBER, topics=["orders"]),
        (READ_GROUP, (Operation.DESCRIBE, TOPIC, "orders")),
        has_no_member=True,
    ),
    MethodCase(
        "BrokerService/Commit",
        lambda _: streams.CommitRequest(**MEMBER, offsets=[streams.Position(topic="orders", partition=0, offset=1)]),
        (READ_GROUP, (Operation.READ, TOPIC, "orders")),
        has_no_member=True,
    ),
    MethodCase(
        "BrokerService/Unsubscribe",
        lambda _: streams.UnsubscribeRequest(group="g", member_id="m"),
        (READ_GROUP,),
        has_no_member=True,
    ),
    MethodCase(
        "BrokerService/Consume",
        lambda _: streams.ConsumeRequest(topic="orders", partition=0),
        ((Operation.READ, TOPIC, "orders"),),
    ),
    MethodCase(
        "TimelineService/Handshake",
        lambda _: timelines.HandshakeRequest(role=timelines.ROLE_PRODUCER, timeline="t-orders", id="me"),
        ((Operation.WRITE, TOPIC, "t-orders"),),
    ),
    MethodCase(
        "TimelineService/Handshake",
        lambda _: timelines.HandshakeRequest(role=timelines.ROLE_CONSUMER, timeline="t-orders", id="me"),
        ((Operation.READ, TOPIC, "t-orders"),),
        label="consumer",
    ),
    MethodCase("TimelineService/CreateTimeline", create_timeline("t-new"), ((Operation.CREATE, TOPIC, "t-new"),)),
    MethodCase(
        "TimelineService/CreateTimeline",
        create_timeline("t-with-dead", **DEAD),
        (
            (Operation.CREATE, TOPIC, "t-with-dead"),
            (Operation.WRITE, TOPIC, "t-dead"),
            (Operation.CREATE, TOPIC, "t-dead"),
        ),
        label="dead letters",
    ),
    MethodCase(
        "TimelineService/AlterTimeline",
        lambda _: timelines.AlterTimelineRequest(name="t-orders", settings={"lease_ms": "5000"}),
        ((Operation.ALTER_CONFIGS, TOPIC, "t-orders"),),
    ),
    MethodCase(
        "TimelineService/AlterTimeline",
        lambda _: timelines.AlterTimelineRequest(
            name="t-other", settings={"max_attempts": "2", "dead_letter": "topic:other"}
        ),
        ((Operation.ALTER_CONFIGS, TOPIC, "t-other"), (Operation.WRITE, TOPIC, "other")),
        label="dead letters",
    ),
    MethodCase(
        "TimelineService/DescribeTimeline",
        lambda _: timelines.DescribeTimelineRequest(name="t-orders"),
        ((Operation.DESCRIBE, TOPIC, "t-orders"),),
    ),
    MethodCase(
        "TimelineService/ListTimelines",
        lambda _: timelines.ListTimelinesRequest(),
        ((Operation.DESCRIBE, TOPIC, "t-orders"),),
        lambda reply: [each.name for each in reply.timelines],
    ),
    MethodCase(
        "TimelineService/Schedule",
        lambda site: timelines.ScheduleRequest(session=producer(site), messages=[BODY]),
        ((Operation.WRITE, TOPIC, "t-orders"),),
    ),
    MethodCase(
        "TimelineService/Move",
        lambda site: timelines.MoveRequest(session=producer(site), ids=["m"], due_ms=4_000_000_000_001),
        ((Operation.WRITE, TOPIC, "t-orders"),),
    ),
    MethodCase(
        "TimelineService/Cancel",
        lambda site: timelines.CancelRequest(session=producer(site), ids=["m"]),
        ((Operation.WRITE, TOPIC, "t-orders"),),
    ),
    MethodCase(
        "TimelineService/Work",
        lambda site: timelines.WorkUp(start=timelines.WorkStart(session=consumer(site))),
        ((Operation.READ, TOPIC, "t-orders"),),
    ),
    MethodCase(
        "TimelineService/Count",
        lambda _: timelines.CountRequest(timeline="t-orders"),
        ((Operation.DESCRIBE, TOPIC, "t-orders"),),
    ),
    MethodCase(
        "TimelineService/Histogram",
        lambda _: timelines.HistogramRequest(timeline="t-orders", to_ms=10, buckets=1),
        ((Operation.DESCRIBE, TOPIC, "t-orders"),),
    ),
    MethodCase(
        "TimelineService/ListMessages",
        lambda _: timelines.ListMessagesRequest(timeline="t-orders", limit=1),
        ((Operation.READ, TOPIC, "t-orders"),),
    ),
    MethodCase(
        "TimelineService/DeleteTimeline",
        lambda _: timelines.DeleteTimelineRequest(name="t-new"),
        ((Operation.DELETE, TOPIC, "t-new"),),
    ),
    MethodCase("TimelineService/Ping", lambda _: timelines.PingRequest(measured=True), ()),
]
RECORDED: set[tuple[str, Operation, ResourceType]] = set()
CHANGED: set[tuple[str, str]] = set()
AUDITED = {
    "BrokerService/CreateTopic": "topic_created",
    "BrokerService/DeleteTopic": "topic_deleted",
    "TimelineService/CreateTimeline": "timeline_created",
    "TimelineService/AlterTimeline": "timeline_altered",
    "TimelineService/DeleteTimeline": "timeline_deleted",
}
"""What the audit log says after a change, by method."""
READING = {
    "ListTopics",
    "GetMetadata",
    "ChooseBrokers",
    "DescribeTimeline",
    "ListTimelines",
    "Count",
    "Histogram",
    "ListMessages",
}
TRAFFIC = {
    *("InitProducer", "Produce", "Subscribe", "Poll", "Commit", "Unsubscribe", "Consume", "Replicate"),
    *("Handshake", "Schedule", "Cancel", "Move", "Work", "Ping"),
}
"""Producers and consumers at work: too many changes for a log."""


@contextmanager
def recorded_checks(method: str) -> Iterator[None]:
    """Note which rights the handlers ask for, and what they write to the audit log."""
    allows, anywhere, changed = ClientRights.allows, ClientRights.allows_anywhere, ClientRights.changed

    def recording_change(self: ClientRights, what: str, /, **fields: Any) -> None:
        CHANGED.add((method, what))
        changed(self, what, **fields)

    def recording(self: ClientRights, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        RECORDED.add((method, operation, resource_type))
        return allows(self, operation, resource_type, name)

    def recording_anywhere(self: ClientRights, operation: Operation, resource_type: ResourceType) -> bool:
        RECORDED.add((method, operation, resource_type))
        return anywhere(self, operation, resource_type)

    with (
        patch.object(ClientRights, "allows", recording),
        patch.object(ClientRights, "allows_anywhere", recording_anywhere),
        patch.object(ClientRights, "changed", recording_change),
    ):
        yield


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method} {case.label}".strip())
def test_a_method_needs_each_of_its_rights(site: Site, case: MethodCase) -> None:
    request = case.request(site)
    with recorded_checks(case.method):
        for missing in case.rights:
            site.grant(*(right for right in case.rights if right != missing))
            if case.shows is not None:
                assert case.shows(site.ask(case.method, request)) == []
                continue
            with pytest.raises(grpc.RpcError) as caught:
                site.ask(case.method, request)
            assert status(caught) is grpc.StatusCode.PERMISSION_DENIED, missing
            assert "User:alice may not" in caught.value.details()
        site.grant(*case.rights)
        if case.has_no_member:
            with pytest.raises(grpc.RpcError) as caught:
                site.ask(case.method, request)
            assert status(caught) in (grpc.StatusCode.ABORTED, grpc.StatusCode.INVALID_ARGUMENT)
            return
        reply = site.ask(case.method, request)
    if case.shows is not None:
        assert set(case.shows(reply)) == {case.rights[0][2]}


def test_of_several_topics_those_that_may_not_be_described_are_left_out(site: Site) -> None:
    site.grant((Operation.DESCRIBE, TOPIC, "orders"))
    names = ["other", "orders", "missing", "orders"]
    found = site.ask("BrokerService/GetMetadata", streams.GetMetadataRequest(topics=names))
    assert [each.name for each in found.topics] == ["orders"]
    found = site.ask("BrokerService/Replicate", streams.ReplicateRequest(topics=names))
    assert [each.topic for each in found.partitions] == ["orders"]
    refusals = set()
    for name in ("other", "missing"):
        with pytest.raises(grpc.RpcError) as caught:
            site.ask("BrokerService/GetMetadata", streams.GetMetadataRequest(topics=[name]))
        refusals.add(caught.value.details().replace(name, "NAME"))
    assert refusals == {"User:alice may not DESCRIBE TOPIC NAME"}  # this does not tell which of them exists


@pytest.mark.parametrize("prefix", ["__schedule.", "__waiting."])
def test_the_rights_on_a_topic_protect_its_scheduled_records(site: Site, prefix: str) -> None:
    """Otherwise ALLOW on every topic and DENY on one would show the records that are scheduled for it."""
    name = f"{prefix}orders"
    calls = [
        ("TimelineService/ListMessages", timelines.ListMessagesRequest(timeline=name)),
        ("TimelineService/Count", timelines.CountRequest(timeline=name)),
        ("TimelineService/DescribeTimeline", timelines.DescribeTimelineRequest(name=name)),
        ("TimelineService/Handshake", timelines.HandshakeRequest(timeline=name, role=timelines.ROLE_PRODUCER, id="p")),
        ("TimelineService/Handshake", timelines.HandshakeRequest(timeline=name, role=timelines.ROLE_CONSUMER, id="c")),
        ("BrokerService/ChooseBrokers", streams.ChooseBrokersRequest(timeline=name)),
    ]
    for method, request in calls:
        site.grant((Operation.ALL, TOPIC, name))
        assert "may not" in _refusal(site, method, request), method
        site.grant((Operation.ALL, TOPIC, "orders"))
        assert "may not" not in _refusal(site, method, request), method


def _refusal(site: Site, method: str, request: Any) -> str:
    """The error of alice's call; empty if there is none."""
    try:
        site.ask(method, request)
    except grpc.RpcError as error:
        return str(error.details())
    return ""


def test_a_client_without_rights_does_not_count_as_a_reader(site: Site) -> None:
    """The counts of readers decide which broker new clients are sent to."""
    noted: list[str] = []
    with patch.object(Readers, "note", lambda _, topics, __: noted.extend(topics)):
        poll = streams.PollRequest(group="readers", member_id="m", member_epoch=1, topics=["orders"])
        for rights in ((), ((Operation.DESCRIBE, TOPIC, "orders"),), ((Operation.READ, GROUP, "readers"),)):
            site.grant(*rights)
            with pytest.raises(grpc.RpcError):
                site.ask("BrokerService/Poll", poll)
        assert not noted
        site.grant((Operation.READ, GROUP, "readers"), (Operation.DESCRIBE, TOPIC, "orders"))
        with pytest.raises(grpc.RpcError):
            site.ask("BrokerService/Poll", poll)
        assert noted == ["orders"]


def test_records_of_a_topic_that_may_not_be_read_are_not_polled(site: Site) -> None:
    """The group may be read, and the topic described: each partition has an error of its own."""
    site.grant((Operation.READ, GROUP, "readers"), (Operation.DESCRIBE, TOPIC, "orders"))
    joined = site.ask(
        "BrokerService/Subscribe",
        streams.SubscribeRequest(group="readers", topics=["orders"], reset=streams.RESET_EARLIEST),
    )
    poll = streams.PollRequest(
        group="readers",
        member_id=joined.member_id,
        member_epoch=joined.member_epoch,
        topics=["orders"],
        positions=[streams.Position(topic="orders", partition=0, offset=0)],
        max_records=10,
        reset=streams.RESET_EARLIEST,
    )
    with recorded_checks("BrokerService/Poll"):
        polled = site.ask("BrokerService/Poll", poll)
    assert [(each.error, list(each.records)) for each in polled.partitions] == [("TopicAuthorizationFailed", [])]
    site.grant((Operation.READ, GROUP, "readers"), (Operation.READ, TOPIC, "orders"))
    assert [each.error for each in site.ask("BrokerService/Poll", poll).partitions] == [""]


def test_the_table_lists_what_the_handlers_check() -> None:
    """After the cases above, in one process: with `-k` or another order this proves less."""
    if {method for method, *_ in RECORDED} < {case.method for case in CASES if case.rights}:
        pytest.skip("the cases have not run in this process")
    listed = {(method, *right[:2]) for method, rows in AUTHORIZATION.items() for right in rows.rights}
    assert listed - RECORDED == set()
    assert RECORDED - listed == set()


def test_every_change_is_audited() -> None:
    """After the cases above, in one process."""
    methods = {f"{service.name}/{each.name}" for service in SERVICES for each in service.methods}
    assert {each.split("/")[1] for each in methods - set(AUDITED)} == READING | TRAFFIC
    if {method for method, *_ in RECORDED} < {case.method for case in CASES if case.rights}:
        pytest.skip("the cases have not run in this process")
    assert set(AUDITED.items()) == CHANGED


def test_a_session_belongs_to_the_user_that_opened_it(site: Site) -> None:
    mine = producer(site)
    stolen = timelines.ScheduleRequest(session=mine, messages=[BODY])
    with pytest.raises(grpc.RpcError) as caught:
        site.as_admin("TimelineService/Schedule", stolen)
    assert dict(caught.value.trailing_metadata())["tidemill-error"] == "UnknownSession"
    started = timelines.WorkUp(start=timelines.WorkStart(session=consumer(site)))
    with pytest.raises(grpc.RpcError) as caught:
        site.as_admin("TimelineService/Work", started)
    assert dict(caught.value.trailing_metadata())["tidemill-error"] == "UnknownSession"


@pytest.mark.parametrize("how", ["acl", "password", "user", "token"])
def test_a_stream_ends_when_its_login_or_right_ends(site: Site, issuer: tuple[Issuer, str], how: str) -> None:
    name = f"worker-{how}"
    login = basic(name, "first")
    if how == "token":
        login = f"Bearer {issuer[0].token(name, aud='tidemill', exp=int(time.time()) + 3)}"
    else:
        set_password(site.kafka, name, "first")
    site.grant((Operation.READ, TOPIC, "t-orders"), user=name)
    greeting = timelines.HandshakeRequest(role=timelines.ROLE_CONSUMER, timeline="t-orders", id=name)
    with site.channel() as channel:
        opened = ask(channel, "TimelineService/Handshake", greeting, login).session
        stub = timeline_pb2_grpc.TimelineServiceStub(channel)
        gate = HeldOpen(timelines.WorkUp(start=timelines.WorkStart(session=opened)))
        stream = stub.Work(gate, metadata=(("authorization", login),), timeout=TIMEOUT_S)
        try:
            assert next(stream).WhichOneof("what") == "ping"
            match how:
                case "acl":
                    site.grant()
                case "password":
                    set_password(site.kafka, name, "second")
                case "user":
                    site.remove(name)
            with pytest.raises(grpc.RpcError) as caught:
                for _ in stream:
                    pass
        finally:
            gate.close()
    expected = grpc.StatusCode.PERMISSION_DENIED if how == "acl" else grpc.StatusCode.UNAUTHENTICATED
    assert status(caught) is expected


class HeldOpen:
    """The messages of a stream that stays open until `close`."""

    def __init__(self, first: Any) -> None:
        from threading import Event

        self._first: list[Any] = [first]
        self._closed = Event()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._first:
            return self._first.pop()
        self._closed.wait(TIMEOUT_S)
        raise StopIteration

    def close(self) -> None:
        self._closed.set()


# -- certificates ------------------------------------------------------------------------------------------------------


def test_the_subject_of_a_certificate_is_the_user(authority: Authority) -> None:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "ssl.truststore.location": authority.path,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:CN=([^,]+),O=Shop/$1/L,DEFAULT",
        "super.users": "User:ada;User:CN=root\\,+O=x,OU=Ops",
        "tidemill.grpc.security": "SSL",
    }
    with Broker(settings=settings) as running:
        site = Site.__new__(Site)
        site.broker, site.authority = running, authority
        request = streams.CreateTopicRequest(name="made-by-ada")
        with site.channel(certificate=authority.issue("/O=Shop/CN=Ada", "ada")) as channel:
            assert ask(channel, "BrokerService/CreateTopic", request, None).name == "made-by-ada"
        with site.channel(certificate=authority.issue("/O=Shop/CN=bob", "bob")) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                ask(channel, "BrokerService/DeleteTopic", streams.DeleteTopicRequest(name="made-by-ada"), None)
            assert status(caught) is grpc.StatusCode.PERMISSION_DENIED
            assert "User:bob may not" in caught.value.details()
        for certificate in (
            None,
            Authority(Path(authority.path).parent / "foreign", "foreign").issue("/CN=ada", "ada"),
        ):
            with site.channel(certificate=certificate) as channel, pytest.raises(grpc.RpcError) as caught:
                ask(channel, "BrokerService/ListTopics", streams.ListTopicsRequest(), None)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_replaced_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    file = Path(authority.issue("/CN=first", "broker", hosts="DNS:first"))
    settings = {
        "ssl.keystore.location": str(file),
        "tidemill.grpc.security": "SSL",
        "authorizer": "none",
    }

    def serves(name: str) -> bool:
        options = (("grpc.ssl_target_name_override", name),)
        credentials = grpc.ssl_channel_credentials(Path(authority.path).read_bytes())
        with grpc.secure_channel(running.grpc, credentials, options) as channel:
            try:
                ask(channel, "BrokerService/ListTopics", streams.ListTopicsRequest(), None)
            except grpc.RpcError:
                return False
        return True

    with Broker(settings=settings) as running:
        assert serves("first")
        assert not serves("second")
        file.write_text("not a certificate\n")
        assert serves("first")
        file.write_text(Path(authority.issue("/CN=second", "next", hosts="DNS:second")).read_text())
        eventually(lambda: serves("second"))
        assert not serves("first")


async def test_idle_connections_are_closed_and_their_clients_connect_again() -> None:
    with Broker(process=True, settings={"connections.max.idle.ms": "1000"}) as running:
        async with grpc.aio.insecure_channel(running.grpc) as channel:
            stub: Any = broker_pb2_grpc.BrokerServiceStub(channel)
            await stub.ListTopics(streams.ListTopicsRequest())
            await eventually_async(lambda: channel.get_state() is grpc.ChannelConnectivity.IDLE)
            await stub.ListTopics(streams.ListTopicsRequest())


def test_without_a_login_the_rights_of_anonymous_count() -> None:
    with Broker(settings={"authorizer": "acl"}) as running, grpc.insecure_channel(running.grpc) as channel:
        assert not ask(channel, "BrokerService/ListTopics", streams.ListTopicsRequest(), None).topics
        with pytest.raises(grpc.RpcError) as caught:
            ask(channel, "BrokerService/CreateTopic", streams.CreateTopicRequest(name="orders"), None)
        assert status(caught) is grpc.StatusCode.PERMISSION_DENIED
        assert "User:ANONYMOUS may not CREATE TOPIC orders" in caught.value.details()
