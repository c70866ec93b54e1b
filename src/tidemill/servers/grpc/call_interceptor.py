"""What happens to every call before its handler: the client logs in, then the request is decoded.

The handlers get the raw request here, for two reasons. Where a login is required, the body of a call, which may have
many megabytes, is received after the login. And a request that cannot be decoded is answered with INVALID_ARGUMENT.
gRPC itself would answer INTERNAL and log the exception with its traceback, so any client could fill the log.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from tidemill.broker.metrics import GRPC_CLIENTS, ApiTraffic, BrokerMetrics
from tidemill.model.errors import InvalidRequest, TidemillError
from tidemill.security.security import Security
from tidemill.servers.grpc.call import SERVER_NAME, GrpcCall
from tidemill.servers.grpc.call_counts import CallOutcome, counted, method_name
from tidemill.servers.grpc.error_status import known_class, refuse
from tidemill.servers.grpc.login import GrpcLogin

REASON = "the request is not a valid message of this method; check the client's version"


class _Handlers(NamedTuple):
    """The handlers of one method: `at_once` receives the request first, `guarded` the login."""

    at_once: Any
    guarded: Any


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc] # grpc has no types
    """Wraps each method once."""

    def __init__(self, security: Security, login: GrpcLogin, metrics: BrokerMetrics) -> None:
        self._security = security
        self._metrics = metrics
        self._login = login
        self._network = metrics.network(GRPC_CLIENTS)
        self._wrapped: dict[str, _Handlers] = {}

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the handler of a call; None for a method that does not exist."""
        known = self._wrapped.get(details.method)
        if known is None:
            handler = await continuation(details)
            if handler is None:
                return None
            known = self._wrapped[details.method] = self._wrap(details.method, handler)
        return known.at_once if self._is_expected(details.invocation_metadata) else known.guarded

    def _is_expected(self, metadata: Any) -> bool:
        try:
            return self._login.is_expected(metadata)
        except TidemillError:  # the guarded handler answers with this error
            return False

    def _wrap(self, method: str, handler: Any) -> _Handlers:
        if handler.request_streaming and handler.response_streaming:
            stream = grpc.stream_stream_rpc_method_handler(
                self._of_stream(method, handler), None, self._counting(handler)
            )
            return _Handlers(stream, stream)
        if handler.request_streaming or handler.response_streaming:
            raise NotImplementedError("methods that stream in one direction only are not supported")
        at_once, traffic = self._of_one(method, handler), self._traffic(method)

        async def guarded(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
            # For the client this is the same call. A streaming handler is called before the request is received.
            with counted(traffic) as outcome:
                call = await self._admitted(method, context, outcome)
                async for data in requests:
                    yield await self._answer(call, handler, data)
                    return
                await refuse(call, InvalidRequest(REASON))

        return _Handlers(
            grpc.unary_unary_rpc_method_handler(at_once, None, self._counting(handler)),
            grpc.stream_stream_rpc_method_handler(guarded, None, self._counting(handler)),
        )

    def _traffic(self, method: str) -> ApiTraffic:
        return self._metrics.api(SERVER_NAME, method_name(method))

    def _of_one(self, method: str, handler: Any) -> Callable[[bytes, Any], Awaitable[Any]]:
        traffic = self._traffic(method)

        async def at_once(data: bytes, context: Any) -> Any:
            with counted(traffic) as outcome:
                return await self._answer(await self._admitted(method, context, outcome), handler, data)

        return at_once

    def _of_stream(self, method: str, handler: Any) -> Callable[[AsyncIterator[bytes], Any], AsyncIterator[Any]]:
        traffic = self._traffic(method)

        async def decoded(requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
            async for data in requests:
                yield self._decoded(handler, data)

        async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
            with counted(traffic) as outcome:
                call = await self._admitted(method, context, outcome)
                await self._check_body(call, b"")
                async for answer in handler.stream_stream(decoded(requests), call):
                    yield answer

        return stream

    async def _admitted(self, method: str, context: Any, outcome: CallOutcome) -> GrpcCall:
        try:
            return GrpcCall(context, self._security, await self._login.caller(method, context), outcome)
        except TidemillError as error:
            outcome.error = known_class(error).__name__
            await refuse(context, error)
            raise

    async def _answer(self, call: GrpcCall, handler: Any, data: bytes) -> Any:
        await self._check_body(call, data)
        try:
            request = self._decoded(handler, data)
        except InvalidRequest as error:
            await refuse(call, error)
        del data  # the handler may wait for long
        return await handler.unary_unary(request, call)

    async def _check_body(self, call: GrpcCall, body: bytes) -> None:
        forwarded = call.caller.forwarded
        if forwarded is None:
            return
        try:
            await self._login.check_body(forwarded, body)
        except TidemillError as error:
            await refuse(call, error)

    def _decoded(self, handler: Any, data: bytes) -> Any:
        self._network.bytes_in += len(data)
        try:
            return handler.request_deserializer(data)
        except DecodeError:
            raise InvalidRequest(REASON) from None

    def _counting(self, handler: Any) -> Callable[[Any], bytes]:
        """The serializer of a method, which counts the bytes that are sent."""
        serialize, network = handler.response_serializer, self._network

        def serialized(message: Any) -> bytes:
            data: bytes = serialize(message)
            network.bytes_out += len(data)
            return data

        return serialized
