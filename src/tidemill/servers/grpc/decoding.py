"""Bytes that are no message of their method: refused with INVALID_ARGUMENT, and no traceback in the log.

gRPC itself answers INTERNAL when a request cannot be decoded, and logs the exception with its traceback: any client
could fill the log. So decoding never fails here; it returns a mark, and the handler is not called.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from tidemill.model.errors import InvalidRequest
from tidemill.model.timeline_errors import TimelineError
from tidemill.servers.grpc.error_status import refuse

MALFORMED = object()
REASON = "the request is no message of this method; is the client of another version?"


class Decoding(grpc.aio.ServerInterceptor):  # type: ignore[misc] # grpc has no types
    """Wraps each method once."""

    def __init__(self) -> None:
        self._wrapped: dict[str, grpc.RpcMethodHandler] = {}

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """The handler of a call; None for a method that does not exist."""
        known = self._wrapped.get(details.method)
        if known is not None:
            return known
        handler = await continuation(details)
        if handler is not None:
            handler = self._wrapped[details.method] = _wrap(handler)
        return handler


def _wrap(handler: Any) -> Any:
    decode = _decoder(handler.request_deserializer)
    if handler.request_streaming and handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(
            _of_stream(handler.stream_stream), decode, handler.response_serializer
        )
    if handler.request_streaming or handler.response_streaming:
        raise NotImplementedError("no method of the schema streams in one direction only")
    return grpc.unary_unary_rpc_method_handler(_of_one(handler.unary_unary), decode, handler.response_serializer)


def _decoder(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError:
            return MALFORMED

    return decoded


def _of_one(call: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def checked(request: Any, context: Any) -> Any:
        if request is MALFORMED:
            await refuse(context, InvalidRequest(REASON))
        return await call(request, context)

    return checked


def _of_stream(
    call: Callable[[AsyncIterator[Any], Any], AsyncIterator[Any]],
) -> Callable[[AsyncIterator[Any], Any], AsyncIterator[Any]]:
    async def whole(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            if request is MALFORMED:
                raise TimelineError(REASON)
            yield request

    async def checked(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        async for answer in call(whole(requests), context):
            yield answer

    return checked
