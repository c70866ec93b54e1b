"""A broker's connection to another broker of its cluster, on the event loop.

Both prove that they know the cluster secret before any other request (`wire.kafka.cluster_proof`). Responses arrive in
the order of the requests. A connection that fails or times out is closed and stays closed; the caller opens another
one.
"""

import asyncio
import ssl
import time
from collections import deque
from secrets import token_bytes
from typing import cast

from tidemill.client.kafka.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidemill.client.kafka.errors import AuthenticationFailed, BrokerUnreachable, ConnectionLost
from tidemill.client.kafka.protocol import Answer, Buffers, OpenRequests, Request, plain, versions_in
from tidemill.model.errors import ProtocolViolation
from tidemill.model.metrics import NetworkTraffic
from tidemill.wire.kafka.cluster_proof import (
    MECHANISM,
    NONCE_BYTES,
    Hello,
    proof_of_asked,
    proof_of_asker,
    same,
    write_hello,
)
from tidemill.wire.kafka.frames import FrameReader

FRAME_BYTES_MAX = 128 * 1024 * 1024
SCRATCH_BYTES = 256 * 1024
PEER_BYTES_EAGER = 16 * 1024 * 1024
"""A response of an authenticated broker gets its whole buffer at once, because growing it would copy it repeatedly."""
CONNECT_S = 5.0
ANSWER_S = 10.0


class PeerConnection(asyncio.BufferedProtocol):
    """A connection to one broker."""

    def __init__(self, address: tuple[str, int], client_id: str, traffic: NetworkTraffic | None = None) -> None:
        self._name = f"{address[0]}:{address[1]}"
        self._requests = OpenRequests(client_id)
        self._traffic = traffic or NetworkTraffic()
        self._frames = FrameReader(memoryview(bytearray(SCRATCH_BYTES)), FRAME_BYTES_MAX)
        self._waiting: deque[asyncio.Future[Answer]] = deque()
        self._transport: asyncio.Transport | None = None
        self._reason: str | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        secret: bytes,
        node_id: int,
        client_id: str,
        tls: ssl.SSLContext | None = None,
        traffic: NetworkTraffic | None = None,
    ) -> "PeerConnection":
        """Open a connection and authenticate both sides. `node_id` is the id of this broker.

        Its bytes and the round trips of requests that the other broker answers at once are added to `traffic`.
        """
        connection = cls((host, port), client_id, traffic)
        try:
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().create_connection(lambda: connection, host, port, ssl=tls)
                await connection._introduce(secret, node_id)
            connection._frames.eager_bytes = PEER_BYTES_EAGER
        except (OSError, TimeoutError) as error:
            connection.close()
            raise BrokerUnreachable(f"broker {host}:{port} does not answer: {error or 'no answer in time'}") from None
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._reason is not None

    async def call(self, request: Request, *, extra_s: float = 0.0) -> Answer:
        """Send a request and wait for the response. `extra_s` is the time for which the other broker may delay it."""
        if self._reason is not None or self._transport is None:
            raise ConnectionLost(f"{self._name}: {self._reason or 'not connected'}")
        _, buffers = self._requests.ask(request)
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._send(buffers)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(ANSWER_S + extra_s):
                answer = await waiter
        except TimeoutError:
            self._end("no answer in time")
            raise ConnectionLost(f"{self._name}: no answer in time") from None
        if not extra_s:
            self._traffic.latency.add(time.perf_counter() - began)
        return answer

    def close(self) -> None:
        """Close the connection. Does nothing if it is closed."""
        self._end("closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests that wait for a response."""
        self._end(str(exc) if exc else "the broker closed the connection")

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        _ = sizehint
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the received bytes."""
        self._traffic.bytes_in += nbytes
        try:
            for frame in self._frames.received(nbytes):
                answer = self._requests.parse(frame)
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_result(answer)
        except ProtocolViolation as error:
            self._end(str(error))

    def _send(self, buffers: Buffers) -> None:
        if self._transport is not None:
            data = b"".join(buffers)
            self._traffic.bytes_out += len(data)
            self._transport.write(data)

    def _end(self, reason: str) -> None:
        if self._reason is not None:
            return
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(ConnectionLost(f"{self._name}: {reason}"))

    async def _introduce(self, secret: bytes, node_id: int) -> None:
        self._requests.learn(versions_in(await self.call(plain(API_VERSIONS, {}))))
        hands = (await self.call(plain(SASL_HANDSHAKE, {"mechanism": MECHANISM}))).message()
        if hands.error_code:
            raise AuthenticationFailed(f"{self._name} belongs to no cluster; start it with --cluster-secret")
        hello = Hello(node_id, token_bytes(NONCE_BYTES))
        response = await self._step(write_hello(hello))
        nonce, proof = response[:NONCE_BYTES], response[NONCE_BYTES:]
        if not same(proof, proof_of_asked(secret, hello, nonce)):
            raise AuthenticationFailed(f"{self._name} has another cluster secret; all brokers need the same one")
        await self._step(proof_of_asker(secret, hello, nonce))

    async def _step(self, message: bytes) -> bytes:
        response = (await self.call(plain(SASL_AUTHENTICATE, {"auth_bytes": message}))).message()
        if response.error_code:
            reason = response.error_message or "no reason given"
            raise AuthenticationFailed(f"{self._name} rejects this broker: {reason}")
        return bytes(response.auth_bytes)
