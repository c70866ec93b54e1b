"""Calls that no client of ours makes: garbage bytes, unknown enumerations, dead letters that go where they must not."""

import logging
import random
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from tidemill.testing import Broker
from tidemill.wire.grpc import broker_pb2, timeline_pb2
from tidemill.wire.grpc.broker_pb2_grpc import BrokerServiceStub
from tidemill.wire.grpc.timeline_pb2_grpc import TimelineServiceStub

LIMIT_S = 60
SERVICES = [
    broker_pb2.DESCRIPTOR.services_by_name["BrokerService"],
    timeline_pb2.DESCRIPTOR.services_by_name["TimelineService"],
]
METHODS = [method for service in SERVICES for method in service.methods]
GARBAGE = (b"\xff", b"\xff" * 1_000, b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 200, b"\x08")
INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(flags={"timelines": "memory:"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(broker.grpc) as channel:
        TimelineServiceStub(channel).CreateTimeline(timeline_pb2.CreateTimelineRequest(name="later"), timeout=LIMIT_S)
        BrokerServiceStub(channel).CreateTopic(broker_pb2.CreateTopicRequest(name="orders"), timeout=LIMIT_S)
        yield channel


def send(channel: grpc.Channel, method: MethodDescriptor, data: bytes) -> grpc.StatusCode:
    """The status of a call with these bytes."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.client_streaming:
            list(channel.stream_stream(path)(iter([data]), timeout=LIMIT_S))
        else:
            channel.unary_unary(path)(data, timeout=LIMIT_S)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_garbage_bytes_are_an_invalid_argument(
    channel: grpc.Channel, method: MethodDescriptor, caplog: pytest.LogCaptureFixture
) -> None:
    assert [send(channel, method, data) for data in GARBAGE] == [INVALID] * len(GARBAGE)
    assert errors(caplog) == []


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_random_bytes_are_never_a_failure_of_the_broker(
    channel: grpc.Channel, method: MethodDescriptor, caplog: pytest.LogCaptureFixture
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(20):
        code = send(channel, method, rng.randbytes(rng.randrange(1, 60)))
        assert code not in {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}
    assert errors(caplog) == []


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("Handshake", timeline_pb2.HandshakeRequest(role=7, timeline="later", id="x")),  # type: ignore[arg-type]
        ("Count", timeline_pb2.CountRequest(timeline="later", status=9)),  # type: ignore[arg-type]
        ("Subscribe", broker_pb2.SubscribeRequest(group="g", topics=["orders"], reset=9)),  # type: ignore[arg-type]
        ("Produce", broker_pb2.ProduceRequest(topic="orders", acks=5)),  # type: ignore[arg-type]
    ],
)
def test_an_unknown_value_of_an_enumeration_is_refused(channel: grpc.Channel, name: str, request_: object) -> None:
    stub = TimelineServiceStub(channel) if name in {"Handshake", "Count"} else BrokerServiceStub(channel)
    with pytest.raises(grpc.RpcError) as refused:
        getattr(stub, name)(request_, timeout=LIMIT_S)
    assert refused.value.code() is INVALID
    assert "must be one of" in refused.value.details()


@pytest.mark.parametrize(
    "dead_letter",
    [
        "topic:__consumer_offsets",
        "topic:__transaction_state",
        "topic:__waiting",
        "timeline:__schedule.orders",
        "timeline:__waiting.orders",
        "timeline:itself",
        "timeline:",
        "topic:a/b",
        "topic:..\n",
        "nonsense",
        "x" * 100_000,
    ],
    ids=lambda text: text[:30].strip(),
)
def test_dead_letters_do_not_go_where_the_broker_keeps_its_own(channel: grpc.Channel, dead_letter: str) -> None:
    stub = TimelineServiceStub(channel)
    settings = {"max_attempts": "1", "dead_letter": dead_letter}
    for call, name in ((stub.CreateTimeline, "itself"), (stub.AlterTimeline, "later")):
        kind = timeline_pb2.CreateTimelineRequest if name == "itself" else timeline_pb2.AlterTimelineRequest
        if (name, dead_letter) == ("later", "timeline:itself"):
            continue
        with pytest.raises(grpc.RpcError) as refused:
            call(kind(name=name, settings=settings), timeout=LIMIT_S)
        assert refused.value.code() is INVALID
    assert "itself" not in names(stub)


def test_dead_letters_that_come_back_are_refused_and_nothing_is_created(channel: grpc.Channel) -> None:
    stub = TimelineServiceStub(channel)
    before = names(stub)
    bad = timeline_pb2.CreateTimelineRequest(
        name="no/name", settings={"max_attempts": "1", "dead_letter": "timeline:g"}
    )
    with pytest.raises(grpc.RpcError):
        stub.CreateTimeline(bad, timeout=LIMIT_S)
    assert names(stub) == before, "not the timeline for its dead letters either"
    for name, target in (("a", "b"), ("b", "c")):
        settings = {"max_attempts": "1", "dead_letter": f"timeline:{target}"}
        request = timeline_pb2.CreateTimelineRequest(name=name, settings=settings)
        if name == "a":
            stub.CreateTimeline(request, timeout=LIMIT_S)
        else:
            stub.AlterTimeline(timeline_pb2.AlterTimelineRequest(name=name, settings=settings), timeout=LIMIT_S)
    back = timeline_pb2.AlterTimelineRequest(name="c", settings={"max_attempts": "1", "dead_letter": "timeline:a"})
    with pytest.raises(grpc.RpcError, match="leads back") as refused:
        stub.AlterTimeline(back, timeout=LIMIT_S)
    assert refused.value.code() is INVALID


def test_a_client_that_leaves_is_no_failure(channel: grpc.Channel, caplog: pytest.LogCaptureFixture) -> None:
    stub = TimelineServiceStub(channel)
    hello = timeline_pb2.HandshakeRequest(role=timeline_pb2.ROLE_CONSUMER, timeline="later", id="w")
    for _ in range(5):
        session = stub.Handshake(hello, timeout=LIMIT_S).session
        start = timeline_pb2.WorkUp(start=timeline_pb2.WorkStart(session=session))
        stream = stub.Work(iter([start]), timeout=LIMIT_S)
        next(iter(stream))
        stream.cancel()
    poll = broker_pb2.ConsumeRequest(topic="orders", partition=0, max_wait_ms=10_000)
    BrokerServiceStub(channel).Consume.future(poll, timeout=LIMIT_S).cancel()
    assert names(stub)
    assert errors(caplog) == []


def names(stub: TimelineServiceStub) -> list[str]:
    return [one.name for one in stub.ListTimelines(timeline_pb2.ListTimelinesRequest(), timeout=LIMIT_S).timelines]
