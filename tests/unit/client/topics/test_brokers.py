"""Connections of topic clients: a call that fails closes its connection, and other calls on it fail in the same way."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tidemill.client.grpc_security import GrpcSecurity
from tidemill.client.kafka.errors import BrokerUnreachable
from tidemill.client.topics.brokers import Brokers
from tidemill.wire.grpc import broker_pb2 as wire


@pytest_asyncio.fixture
async def silent() -> AsyncIterator[str]:
    """The address of a server that accepts connections and never answers."""
    writers = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    yield f"{host}:{port}"
    server.close()
    for writer in writers:
        writer.close()


async def test_calls_fail_when_another_call_closes_their_connection(silent: str) -> None:
    brokers = Brokers(silent, connect_timeout_ms=1_000, security=GrpcSecurity())
    lasting = asyncio.create_task(brokers.call_at(silent, "GetMetadata", wire.GetMetadataRequest(), timeout_ms=60_000))
    await asyncio.sleep(0)
    with pytest.raises(BrokerUnreachable):
        await brokers.call_at(silent, "GetMetadata", wire.GetMetadataRequest(), timeout_ms=50)
    with pytest.raises(BrokerUnreachable, match="was lost"):
        await asyncio.wait_for(lasting, 30)
    await brokers.close()


async def test_a_cancelled_call_stays_cancelled(silent: str) -> None:
    brokers = Brokers(silent, connect_timeout_ms=1_000, security=GrpcSecurity())
    call = asyncio.create_task(brokers.call_at(silent, "GetMetadata", wire.GetMetadataRequest(), timeout_ms=60_000))
    await asyncio.sleep(0.01)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await brokers.close()


async def test_a_late_failure_keeps_the_connection_that_replaced_its_own(silent: str) -> None:
    brokers = Brokers(silent, connect_timeout_ms=1_000, security=GrpcSecurity())
    old, _ = brokers._stub(silent)
    await brokers._drop(silent, old)
    new, _ = brokers._stub(silent)
    await brokers._drop(silent, old)
    assert brokers._stub(silent)[0] is new
    await brokers.close()
