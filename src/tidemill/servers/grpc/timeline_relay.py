"""TimelineService on a broker without the carrier role: it forwards each call unchanged to a carrier.

All calls use one carrier until it disappears, because sessions exist in the memory of one broker. If the next carrier
does not know a client's session, the client repeats the handshake. Our own clients ask for the carriers and connect to
them directly (ChooseBrokers). This relay serves all other clients.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.servers.grpc.error_status import refuse
from tidemill.servers.grpc.routing import Routes
from tidemill.wire.grpc import timeline_pb2_grpc as generated


class TimelineRelay:
    """The calls of the schema, each by its name."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def __getattr__(self, method: str) -> Callable[[Any, Any], Any]:
        """Return the handler of any unary call."""

        async def call(request: Any, context: Any) -> Any:
            stub = await self._stub(context)
            try:
                return await getattr(stub, method)(request, timeout=context.time_remaining())
            except grpc.aio.AioRpcError as error:
                return await _pass_on(context, error)

        return call

    async def Work(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Forward the stream of a consumer, in both directions."""
        stub = await self._stub(context)
        stream = stub.Work(requests)
        try:
            async for down in stream:
                yield down
        except grpc.aio.AioRpcError as error:
            await _pass_on(context, error)
        finally:
            stream.cancel()

    async def _stub(self, context: Any) -> Any:
        address = self._routes.carrier()
        if address is None:
            error = StoreUnavailable(
                "this broker has only the overseer role and no carrier is running; start one with --roles carrier"
            )
            await refuse(context, error)
        return generated.TimelineServiceStub(self._routes.channel(str(address)))


async def _pass_on(context: Any, error: grpc.aio.AioRpcError) -> None:
    await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
