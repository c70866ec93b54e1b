"""A gRPC channel that adds the client's login to every call."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from tidemill.client.grpc_login import ClientLogin

AUTHORIZATION_KEY = "authorization"


class LoginChannel:
    """Wraps a channel for the generated stubs. A call whose token is refused is repeated once with a new one."""

    def __init__(self, channel: grpc.aio.Channel, login: ClientLogin) -> None:
        self._channel = channel
        self._login = login

    def unary_unary(self, path: str, *arguments: Any, **options: Any) -> Callable[..., Awaitable[Any]]:
        """The function that makes calls of this method."""
        ask = self._channel.unary_unary(path, *arguments, **options)

        async def call(request: Any, *, timeout: float | None = None, metadata: tuple[Any, ...] = ()) -> Any:
            value = await self._login.value()
            try:
                return await ask(request, timeout=timeout, metadata=(*metadata, (AUTHORIZATION_KEY, value)))
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAUTHENTICATED or not self._login.renew(value):
                    raise
            renewed = (*metadata, (AUTHORIZATION_KEY, await self._login.value()))
            return await ask(request, timeout=timeout, metadata=renewed)

        return call

    def stream_stream(self, path: str, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """The function that opens streams of this method; another call must have been made before."""
        ask = self._channel.stream_stream(path, *arguments, **options)
        return lambda *requests: ask(*requests, metadata=((AUTHORIZATION_KEY, self._login.newest),))

    async def channel_ready(self) -> None:
        """Wait until the connection works, without a login."""
        await self._channel.channel_ready()

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()
