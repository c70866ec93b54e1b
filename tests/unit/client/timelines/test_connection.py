"""Connections of timeline clients: a call on a connection that another call closed is retried, not cancelled."""

import asyncio

import pytest

from tidemill.client.grpc_security import GrpcSecurity
from tidemill.client.rpc import open_channel
from tidemill.client.timelines.connection import TimelineConnection
from tidemill.model.timeline_errors import Unreachable
from tidemill.wire.grpc import timeline_pb2 as wire
from tidemill.wire.grpc import timeline_pb2_grpc as service


async def test_a_call_is_retried_when_another_call_closes_its_connection() -> None:
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    connection = TimelineConnection(address, timeout_ms=500)
    connection._channel = open_channel(address, GrpcSecurity())
    connection._stub = service.TimelineServiceStub(connection._channel)
    call = asyncio.create_task(connection.call("Count", wire.CountRequest()))
    await asyncio.sleep(0.01)
    await connection.close()
    with pytest.raises(Unreachable):
        await call
    await connection.end()
    server.close()
    for writer in accepted:
        writer.close()
