"""A blocking connection to one broker: TCP, TLS, version negotiation and login, then pipelined requests.

The caller may send a request before it has read earlier responses (`ask`, then `answer`). The next fetch is in flight
while the last one is decoded. A connection that fails or times out is closed and stays closed; the caller opens another
one.
"""

import secrets
import socket
import ssl
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from struct import Struct

from tidemill.client.kafka import sasl
from tidemill.client.kafka.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidemill.client.kafka.errors import AuthenticationFailed, BrokerUnreachable, ConnectionLost, NotKafka
from tidemill.client.kafka.options import ActingLogin, ClientOptions, Credentials, PeerLogin
from tidemill.client.kafka.protocol import Answer, Buffer, OpenRequests, Request, plain, versions_in
from tidemill.client.kafka.tls import certificate_refusal, tls_context, verification_advice
from tidemill.client.kafka.topology import BrokerEndpoint
from tidemill.client.kafka.wrong_port import listener_hint
from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.cluster_proof import (
    ACTING_MECHANISM,
    MECHANISM,
    Hello,
    proof_of_asked,
    proof_of_asker,
    same,
    write_hello,
)
from tidemill.wire.kafka.cluster_proof import NONCE_BYTES as PROOF_NONCE_BYTES

FRAME_BYTES_MAX = 512 * 1024 * 1024
NONCE_BYTES = 24
_SIZE = Struct(">i")


class BlockingConnection:
    """A connection to one broker."""

    def __init__(self, address: BrokerEndpoint, options: ClientOptions) -> None:
        self.address = address
        self._timeout_s = options.request_timeout_ms / 1000
        self._requests = OpenRequests(options.client_id)
        self._early: dict[int, Answer] = {}
        self._unwanted: set[int] = set()
        self._head = bytearray(_SIZE.size)
        self._socket = _connect(address, options)
        self.closed = False
        try:
            self._introduce(options)
        except BaseException:
            self.close()
            raise

    def call(self, request: Request, *, extra_s: float = 0.0) -> Answer:
        """Send a request and wait for the response."""
        return self.answer(self.ask(request), extra_s=extra_s)

    def ask(self, request: Request) -> int:
        """Send a request. Returns its number for `answer`."""
        number, buffers = self._requests.ask(request)
        with self._guarded():
            self._socket.settimeout(self._timeout_s)
            for piece in _joined(buffers):
                self._socket.sendall(piece)
        return number

    def answer(self, number: int, *, extra_s: float = 0.0) -> Answer:
        """The response to an earlier request. `extra_s` is the time that the broker may wait before it answers."""
        deadline = time.monotonic() + self._timeout_s + extra_s
        while number not in self._early:
            if self.closed:
                raise ConnectionLost(f"the connection to {self.address} is closed")
            with self._guarded():
                answer = self._requests.parse(self._frame(deadline))
            if answer.number in self._unwanted:
                self._unwanted.discard(answer.number)
            else:
                self._early[answer.number] = answer
        return self._early.pop(number)

    def abandon(self, number: int) -> None:
        """Discard the response to this request when it arrives."""
        if self._early.pop(number, None) is None:
            self._unwanted.add(number)

    def close(self) -> None:
        """Close the connection. Does nothing if it is closed."""
        self.closed = True
        with suppress(OSError):
            self._socket.close()

    def _introduce(self, options: ClientOptions) -> None:
        try:
            self._requests.learn(versions_in(self.call(plain(API_VERSIONS, {}))))
        except (ConnectionLost, ProtocolViolation) as error:
            if (said := listener_hint(bytes(self._head))) is not None:
                raise NotKafka(f"{self.address} {said}") from None
            if isinstance(error, ProtocolViolation):
                raise
            raise ConnectionLost(f"{error} before its first response; check security.protocol") from None
        if options.peer is not None:
            self._authenticate_broker(options.peer)
        if options.acting is not None:
            self._authenticate_for_client(options.acting)
        if options.credentials is not None:
            self._authenticate(options.credentials)

    def _authenticate(self, credentials: Credentials) -> None:
        handshake = self.call(plain(SASL_HANDSHAKE, {"mechanism": credentials.mechanism})).message()
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise AuthenticationFailed(f"{self.address} does not support {credentials.mechanism}; it offers {offered}")
        steps = sasl.exchange(credentials, secrets.token_urlsafe(NONCE_BYTES))
        message = next(steps)
        with suppress(StopIteration):
            while True:
                response = self.call(plain(SASL_AUTHENTICATE, {"auth_bytes": message})).message()
                if response.error_code:
                    reason = response.error_message or "wrong user or password"
                    raise AuthenticationFailed(f"{self.address} rejects user {credentials.username}: {reason}")
                message = steps.send(response.auth_bytes)

    def _authenticate_broker(self, peer: PeerLogin) -> None:
        """Prove that this is a broker of the cluster, to one that proves it too."""
        handshake = self.call(plain(SASL_HANDSHAKE, {"mechanism": MECHANISM})).message()
        if handshake.error_code:
            raise AuthenticationFailed(f"{self.address} belongs to no cluster; start it with --cluster-secret")
        hello = Hello(peer.node_id, secrets.token_bytes(PROOF_NONCE_BYTES))
        response = self._broker_step(write_hello(hello))
        nonce, proof = response[:PROOF_NONCE_BYTES], response[PROOF_NONCE_BYTES:]
        if not same(proof, proof_of_asked(peer.secret, hello, nonce)):
            raise AuthenticationFailed(f"{self.address} has another cluster secret; all brokers need the same one")
        self._broker_step(proof_of_asker(peer.secret, hello, nonce))

    def _authenticate_for_client(self, acting: ActingLogin) -> None:
        """Log in for a client of the HTTP server of this broker."""
        handshake = self.call(plain(SASL_HANDSHAKE, {"mechanism": ACTING_MECHANISM})).message()
        if handshake.error_code:
            raise AuthenticationFailed(f"{self.address} accepts no clients of other brokers; run one version on all")
        self._broker_step(acting.token(_SIZE.unpack(self._broker_step(b""))[0]).encode())

    def _broker_step(self, message: bytes) -> bytes:
        response = self.call(plain(SASL_AUTHENTICATE, {"auth_bytes": message})).message()
        if response.error_code:
            reason = response.error_message or "no reason given"
            raise AuthenticationFailed(f"{self.address} rejects this broker: {reason}")
        return bytes(response.auth_bytes)

    def _frame(self, deadline: float) -> bytearray:
        self._fill(self._head, deadline)
        size = _SIZE.unpack(self._head)[0]
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise ProtocolViolation(
                f"{self.address} sent a frame size of {size} bytes; check that it is a Kafka broker"
            )
        frame = bytearray(size)
        self._fill(frame, deadline)
        return frame

    def _fill(self, buffer: bytearray, deadline: float) -> None:
        view = memoryview(buffer)
        while view:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("no answer in time")
            self._socket.settimeout(left_s)
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionError("the broker closed the connection")
            view = view[count:]

    @contextmanager
    def _guarded(self) -> Generator[None]:
        # An error within a frame leaves the stream at an unknown position, so the connection cannot be used again.
        try:
            yield
        except OSError as error:
            self.close()
            if (refusal := certificate_refusal(error)) is not None:  # TLS 1.3 says so after the handshake
                raise AuthenticationFailed(f"{self.address} {refusal}") from None
            raise ConnectionLost(f"{self.address}: {_reason(error)}") from None
        except BaseException:
            self.close()
            raise


def _connect(address: BrokerEndpoint, options: ClientOptions) -> socket.socket:
    timeout_s = options.connect_timeout_ms / 1000
    try:
        plain_socket = socket.create_connection(address, timeout_s)
    except OSError as error:
        raise BrokerUnreachable(f"no broker answers at {address}: {_reason(error)}") from None
    try:
        plain_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        context = options.context if options.tls is None else tls_context(options.tls)
        if context is None:
            return plain_socket
        return context.wrap_socket(plain_socket, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        plain_socket.close()
        advice = verification_advice(error, "ssl.ca.location or ssl.truststore.location")
        raise AuthenticationFailed(f"{address}: {error.verify_message}; {advice}") from None
    except OSError as error:
        plain_socket.close()
        if (refusal := certificate_refusal(error)) is not None:
            raise AuthenticationFailed(f"{address} {refusal}") from None
        raise BrokerUnreachable(f"the TLS handshake with {address} failed: {_reason(error)}") from None
    except BaseException:
        plain_socket.close()
        raise


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()


def _joined(buffers: list[Buffer], small_bytes: int = 64 * 1024) -> list[Buffer]:
    """Join small buffers, so that a request does not become many packets. Large ones stay separate."""
    if sum(len(part) for part in buffers) <= small_bytes:
        return [b"".join(buffers)]
    return buffers
