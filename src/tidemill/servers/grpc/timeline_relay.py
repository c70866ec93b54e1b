"""TimelineService on a broker without the carrier role: it forwards each call unchanged to a carrier.

All calls use one carrier until it disappears, because sessions exist in the memory of one broker. If the next carrier
does not know a client's session, the client repeats the handshake. Our own clients ask for the carriers and connect to
them directly (ChooseBrokers). This relay serves all other clients.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import TidemillError
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.servers.grpc.broker_choice import best_carrier, carriers_of
from tidemill.servers.grpc.call import GrpcCall
from tidemill.servers.grpc.error_status import refuse
from tidemill.servers.grpc.routing import Peer, Routes, path_of
from tidemill.servers.grpc.work_stream import PING_S
from tidemill.wire.grpc import timeline_pb2

SERVICE = timeline_pb2.DESCRIPTOR.services_by_name["TimelineService"]


class TimelineRelay:
    """The calls of the schema, each by its name. The carrier checks the rights of the client."""

    def __init__(self, broker: BrokerNode, routes: Routes) -> None:
        self._routes = routes
        self._broker = broker
        self._used: int | None = None
        """The carrier that is used now."""

    def __getattr__(self, method: str) -> Callable[[Any, Any], Any]:
        """Return the handler of any unary call."""
        described = SERVICE.methods_by_name[method]
        reply = getattr(timeline_pb2, described.output_type.name)

        async def relay(request: Any, call: GrpcCall) -> Any:
            carrier = await self._carrier(call)
            try:
                return await self._routes.ask(carrier, described, reply, request, call)(call.time_remaining())
            except grpc.aio.AioRpcError as error:
                return await _pass_on(call, error)

        return relay

    async def Work(self, requests: AsyncIterator[Any], call: GrpcCall) -> AsyncIterator[Any]:  # noqa: N802
        """Forward the stream of a consumer, in both directions, while its login is valid."""
        carrier = await self._carrier(call)
        path = path_of(SERVICE.methods_by_name["Work"])
        stub = self._routes.channel(carrier.address).stream_stream(
            path, timeline_pb2.WorkUp.SerializeToString, timeline_pb2.WorkDown.FromString
        )
        stream = stub(requests, metadata=self._routes.metadata(carrier, path, b"", call))
        guard = asyncio.create_task(self._guard(call, stream))
        try:
            async for down in stream:
                yield down
        except grpc.aio.AioRpcError as error:
            await _pass_on(call, error)
        except asyncio.CancelledError:
            if not guard.done() or guard.cancelled():
                raise
            await refuse(call, guard.result())
        finally:
            guard.cancel()
            stream.cancel()

    async def _guard(self, call: GrpcCall, stream: Any) -> TidemillError:
        """End the stream when the login ends; return why."""
        while True:
            await asyncio.sleep(PING_S)
            try:
                await call.check_login(self._broker.clock_ms())
            except TidemillError as error:
                stream.cancel()
                return error

    async def _carrier(self, call: GrpcCall) -> Peer:
        carriers = carriers_of(self._broker.view.image.brokers)
        if self._used not in carriers:
            self._used = best_carrier(self._broker)
        if self._used is None:
            error = StoreUnavailable(
                "this broker has only the overseer role and no carrier is running; start one with --roles carrier"
            )
            await refuse(call, error)
            raise error
        found = carriers[self._used]
        return Peer(self._used, str(found.grpc), found.rack or "")


async def _pass_on(call: GrpcCall, error: grpc.aio.AioRpcError) -> None:
    await call.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
