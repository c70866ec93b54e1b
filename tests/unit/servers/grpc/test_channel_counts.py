"""Operations in a stream, open streams, active producers, and which errors count."""

import asyncio
from time import perf_counter

import pytest
from tests.support.readings import values_of

from tidemill.broker.metrics import GRPC_CLIENTS, BrokerMetrics
from tidemill.model.timeline_errors import (
    BadHandshake,
    ConsumerReplaced,
    StaleLease,
    StoreUnavailable,
    TimelineNotReady,
    UnknownMessage,
    UnknownSession,
)
from tidemill.security.core.principal import user
from tidemill.servers.grpc.channel_counts import CONSUMER, PRODUCER, ChannelCounts
from tidemill.servers.grpc.client_sessions import ACTIVE_S, ClientSessions
from tidemill.timelines.core.lease import CommandOutcome, Complete, Extend, Release
from tidemill.wire.grpc import timeline_pb2 as wire

ADA = user("ada")


def channels(counts: ChannelCounts, metric: str, producers: int = 0) -> tuple[float, float]:
    found = values_of(counts.readings(lambda: producers)())
    first, second = (found[f'tidemill_{metric}{{server="grpc",type="{kind}"}}'] for kind in (PRODUCER, CONSUMER))
    return first, second


def test_each_operation_of_a_stream_is_a_request() -> None:
    metrics = BrokerMetrics()
    counts = ChannelCounts(metrics)
    done = CommandOutcome.DONE
    batch = [(Complete(1, 2), done), (Complete(2, 2), done), (Complete(3, 2), CommandOutcome.STALE)]
    counts.settled([*batch, (Release(4, 2, 5), StoreUnavailable("no")), (Extend(5, 2, 9), done)], perf_counter() - 2)
    found = {name: (traffic.duration.count, traffic.errors) for (_, name), traffic in metrics.apis.items()}
    assert found == {
        "TimelineService/Work.Complete": (3, {StaleLease.__name__: 1}),
        "TimelineService/Work.Release": (1, {StoreUnavailable.__name__: 1}),
        "TimelineService/Work.Extend": (1, {}),
    }
    assert metrics.api("grpc", "TimelineService/Work.Complete").duration.total == pytest.approx(6, abs=0.5)


def test_each_rejected_message_of_a_call_is_an_error() -> None:
    metrics = BrokerMetrics()
    counts = ChannelCounts(metrics)
    counts.rejected("Cancel", [CommandOutcome.DONE, CommandOutcome.MISSING, CommandOutcome.MISSING])
    counts.rejected("Move", [CommandOutcome.DONE])
    assert metrics.api("grpc", "TimelineService/Cancel").errors == {UnknownMessage.__name__: 2}
    assert metrics.api("grpc", "TimelineService/Move").errors == {}


def test_round_trips_of_pings_are_those_of_clients_of_grpc() -> None:
    metrics = BrokerMetrics()
    ChannelCounts(metrics).round_trip(0.25)
    latency = metrics.network(GRPC_CLIENTS).latency
    assert (latency.count, latency.total) == (1, 0.25)


async def test_a_stream_is_a_channel_while_it_is_open() -> None:
    counts = ChannelCounts(BrokerMetrics())
    with counts.consuming(), counts.consuming():
        assert channels(counts, "channels", producers=7) == (7, 2)
    assert channels(counts, "channels") == (0, 0)


@pytest.mark.parametrize("error", [StoreUnavailable("no"), BadHandshake("no")])
def test_a_failed_call_is_an_error_of_its_channel(error: Exception) -> None:
    counts = ChannelCounts(BrokerMetrics())
    for kind in (PRODUCER, CONSUMER, CONSUMER):
        with pytest.raises(type(error)), counts.failures(kind):
            raise error
    assert channels(counts, "channel_errors") == (1, 2)


@pytest.mark.parametrize(
    "error", [ConsumerReplaced(), UnknownSession(), TimelineNotReady("changed"), asyncio.CancelledError()]
)
def test_an_end_that_the_protocol_expects_is_no_error(error: BaseException) -> None:
    counts = ChannelCounts(BrokerMetrics())
    with pytest.raises(type(error)), counts.failures(CONSUMER):
        raise error
    assert channels(counts, "channel_errors") == (0, 0)


def test_a_producer_is_active_for_a_while_after_its_last_call() -> None:
    now_s, numbers = 1_000.0, iter("abcdef")
    sessions = ClientSessions(lambda: next(numbers), lambda: now_s)
    for role in (wire.ROLE_PRODUCER, wire.ROLE_CONSUMER, wire.ROLE_PRODUCER):
        sessions.open(ADA, wire.HandshakeRequest(role=role, timeline="later", id="shop"))
    assert sessions.producers() == 2
    now_s += ACTIVE_S
    assert sessions.producers() == 2
    now_s += 1
    assert sessions.producers() == 0
    sessions.producer(ADA, "a")
    assert sessions.producers() == 1
