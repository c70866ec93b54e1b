"""Calls from nowhere: every method of both gRPC services with values that no client of ours would send.

An answer or a refusal that has a name is fine; INTERNAL and UNKNOWN are what a handler that failed looks like.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tidemill.model.broker_settings import TOPIC_SETTING_OF
from tidemill.testing import Broker
from tidemill.wire.grpc import broker_pb2, timeline_pb2

CALLS_OF_METHOD = 25
LIMIT_S = 20
FAILED = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}
SERVICES = [
    broker_pb2.DESCRIPTOR.services_by_name["BrokerService"],
    timeline_pb2.DESCRIPTOR.services_by_name["TimelineService"],
]
METHODS = [method for service in SERVICES for method in service.methods]
SMALL = (0, 0, 1, 1, 2, -1, -2, 100)
INT_32 = (*SMALL, 2**15, 2**31 - 1, -(2**31))
INT_64 = (*INT_32, 2**40, 2**63 - 1, -(2**63))
TEXTS = ("", "orders", "orders", "later", "nowhere", "a/b", "..", "\0", "é\n", "x" * 300, "__consumer_offsets")
BLOBS = (b"", b"\xff\x00", b"x" * 1_000)
SETTINGS = (*TOPIC_SETTING_OF.values(), "lease_ms", "max_attempts", "dead_letter", "nonsense")
VALUES = ("", "1", "-1", "true", "1e9", "9" * 5_000, "compact", "orders", "\0")


def repeated(field: FieldDescriptor) -> bool:
    """`is_repeated` where protobuf has it; older versions have `label`, which newer ones removed."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED)


def drawn(kind: type[Message], rng: random.Random, session: str) -> Message:
    """A message of this kind with fields that were left out, are odd, or are right."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if rng.random() < 0.2:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name).update({rng.choice(SETTINGS): rng.choice(VALUES) for _ in range(2)})
        elif repeated(field):
            for _ in range(rng.randrange(4)):
                add(getattr(message, field.name), field, rng, session)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(drawn(GetMessageClass(field.message_type), rng, session))
        else:
            setattr(message, field.name, scalar(field, rng, session))
    return message


def add(items: Any, field: FieldDescriptor, rng: random.Random, session: str) -> None:
    if field.message_type is None:
        items.append(scalar(field, rng, session))
    else:
        items.append(drawn(GetMessageClass(field.message_type), rng, session))


def scalar(field: FieldDescriptor, rng: random.Random, session: str) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return session if field.name == "session" and rng.random() < 0.8 else rng.choice(TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return rng.choice(BLOBS)
        case FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.TYPE_ENUM:
            return rng.choice((0, 0, 1, 2, 7, -1, 2**31 - 1))
        case FieldDescriptor.TYPE_INT32 if field.name in {"max_wait_ms", "replication_factor"}:
            return rng.choice((0, 1, -1))
        case FieldDescriptor.TYPE_INT32:
            return rng.choice(INT_32)
        case FieldDescriptor.TYPE_UINT64:
            return rng.choice((0, 1, 2**64 - 1))
        case _:
            return rng.choice(INT_64)


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    with Broker() as broker, grpc.insecure_channel(broker.grpc) as open_:
        yield open_


def stub(channel: grpc.Channel, method: MethodDescriptor) -> Callable[..., Any]:
    path = f"/{method.containing_service.full_name}/{method.name}"
    make = channel.stream_stream if method.client_streaming else channel.unary_unary
    called: Callable[..., Any] = make(
        path,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return called


def session_of(channel: grpc.Channel, role: timeline_pb2.Role) -> str:
    """Who shook hands with a timeline that there is; both it and a topic are there whatever was deleted."""
    methods = {method.name: stub(channel, method) for method in METHODS}
    for create, request in (
        ("CreateTopic", broker_pb2.CreateTopicRequest(name="orders", partitions=2)),
        ("CreateTimeline", timeline_pb2.CreateTimelineRequest(name="later")),
    ):
        with contextlib.suppress(grpc.RpcError):  # it is there
            methods[create](request, timeout=LIMIT_S)
    hello = timeline_pb2.HandshakeRequest(role=role, timeline="later", id="fuzz")
    return str(methods["Handshake"](hello, timeout=LIMIT_S).session)


def outcome(call: Callable[..., Any], requests: list[Message], session: str) -> tuple[grpc.StatusCode, str]:
    """What a call ends with; a stream is begun in the right way."""
    try:
        if len(requests) > 1:
            start = timeline_pb2.WorkUp(start=timeline_pb2.WorkStart(session=session))
            list(call(iter([start, *requests]), timeout=LIMIT_S))
        else:
            call(requests[0], timeout=LIMIT_S)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_any_message_is_answered_or_refused(channel: grpc.Channel, method: MethodDescriptor) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    call, kind = stub(channel, method), GetMessageClass(method.input_type)
    for _ in range(CALLS_OF_METHOD):
        session = session_of(channel, rng.choice((timeline_pb2.ROLE_PRODUCER, timeline_pb2.ROLE_CONSUMER)))
        requests = [drawn(kind, rng, session) for _ in range(4)]
        status, words = outcome(call, requests if method.client_streaming else requests[:1], session)
        assert status not in FAILED, (words, requests)
