"""TimelineService at a broker that oversees and carries nothing: each call goes on to a carrier, as it is.

One carrier is used for all calls until it is gone, for sessions live in the memory of one broker; a client whose
session the next carrier does not know shakes hands again. Our own clients ask for the carriers and talk to them
directly (ChooseBrokers); this is for those that do not.
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
        """Any call of one question and one answer."""

        async def call(request: Any, context: Any) -> Any:
            stub = await self._stub(context)
            try:
                return await getattr(stub, method)(request, timeout=context.time_remaining())
            except grpc.aio.AioRpcError as error:
                return await _pass_on(context, error)

        return call

    async def Work(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """The stream of a consumer, in both directions."""
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
            error = StoreUnavailable("this broker only oversees, and no carrier is there; start one: --roles carrier")
            await refuse(context, error)
        return generated.TimelineServiceStub(self._routes.channel(str(address)))


async def _pass_on(context: Any, error: grpc.aio.AioRpcError) -> None:
    await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata() or ()))
