"""What a connection is used for is counted apart for clients and for brokers."""

import asyncio
import socket
from contextlib import suppress

import pytest

from tidemill.broker.metrics import BROKERS, KAFKA_CLIENTS, BrokerMetrics
from tidemill.security.core.event_limiter import EventLimiter
from tidemill.servers.kafka.api import ConnectionIdentity
from tidemill.servers.kafka.client_channel import FETCH, PRODUCE, ClientChannel


@pytest.fixture
def metrics() -> BrokerMetrics:
    return BrokerMetrics()


@pytest.fixture
def channel(metrics: BrokerMetrics) -> ClientChannel:
    return ClientChannel(metrics, EventLimiter(lambda: 0.0))


def test_a_client_produces_and_consumes(channel: ClientChannel) -> None:
    assert (channel.produces, channel.consumes) == (False, False)
    channel.apis |= 1 << PRODUCE
    assert (channel.produces, channel.consumes) == (True, False)
    channel.apis |= 1 << FETCH
    assert (channel.produces, channel.consumes) == (True, True)


def test_a_broker_is_no_client(channel: ClientChannel, metrics: BrokerMetrics) -> None:
    channel.traffic.bytes_in += 7
    identity = ConnectionIdentity()
    channel.belongs_to(identity)
    assert channel.traffic is metrics.network(KAFKA_CLIENTS)
    identity.node_id = 3
    channel.belongs_to(identity)
    channel.traffic.bytes_in += 5
    channel.apis |= 1 << FETCH
    assert not channel.consumes
    assert (metrics.network(KAFKA_CLIENTS).bytes_in, metrics.network(BROKERS).bytes_in) == (7, 5)


@pytest.mark.event_loop("uvloop")
async def test_the_round_trip_is_that_of_tcp(channel: ClientChannel) -> None:
    channel.measure()  # not connected
    connected: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connected.set_result(transport)  # type: ignore[arg-type] # a stream transport

    server = await asyncio.get_running_loop().create_server(Accepted, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    channel.transport = await connected
    channel.measure()
    latency = channel.traffic.latency
    assert (latency.count, 0 < latency.largest < 10) == (1, True)
    channel.transport.abort()
    channel.measure()  # closing: its socket may not exist any more
    assert latency.count == 1
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    server.close()
    await server.wait_closed()


def test_a_system_without_the_option_measures_nothing(channel: ClientChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "TCP_INFO")
    channel.transport = _Nothing()  # type: ignore[assignment] # must not be used
    channel.measure()
    assert channel.traffic.latency.count == 0


class _Nothing:
    pass
