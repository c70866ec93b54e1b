"""A TLS and SASL listener in front of a broker without them. It stands in for Kafka's SASL_SSL listeners in tests.

It terminates TLS and answers SaslHandshake and SaslAuthenticate (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512). Before
authentication it passes only ApiVersions. After it, the client talks to the broker directly. The broker must advertise
the address of this listener. Messages are parsed by hand, so that this code shares no bug with the client.
"""

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import suppress
from struct import Struct
from types import TracebackType
from typing import Self, TypeAlias

from tests.support.etcd import Certificates

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
FLEXIBLE_AUTHENTICATE = 2
UNSUPPORTED_MECHANISM, AUTHENTICATION_FAILED = 33, 58
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = ("PLAIN", *HASHES)
ITERATIONS = 4096
_HEAD = Struct(">hhih")
_INT32 = Struct(">i")
_INT16 = Struct(">h")

Exchange: TypeAlias = Generator[tuple[bytes, bool], bytes, None]
"""Takes the client's messages, and yields each reply and whether it is the last."""


class Refused(Exception):
    """The client failed to authenticate."""


class SecuredFront:
    """Listens on a free port from the start. `serve` sets the broker."""

    def __init__(self, certificates: Certificates, users: dict[str, str], *, ask_certificate: bool = False) -> None:
        self._users = users
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.cert, certificates.key)
        if ask_certificate:
            self._context.load_verify_locations(certificates.ca)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.admitted: list[str] = []
        """The mechanisms by which clients have authenticated."""

    def serve(self, broker: str) -> None:
        host, _, port = broker.rpartition(":")
        self._broker = (host, int(port))
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(plain,), daemon=True).start()

    def _talk(self, plain: socket.socket) -> None:
        with (
            suppress(OSError, Refused),
            self._context.wrap_socket(plain, server_side=True) as client,
            socket.create_connection(self._broker) as broker,
        ):
            self._admit(client, broker)
            threading.Thread(target=_pump, args=(broker, client), daemon=True).start()
            _pump(client, broker)

    def _admit(self, client: socket.socket, broker: socket.socket) -> None:
        steps: Exchange | None = None
        while True:
            frame = _frame(client)
            key, version, number, length = _HEAD.unpack_from(frame)
            body = frame[_HEAD.size + max(length, 0) :]
            if key == API_VERSIONS:
                broker.sendall(_INT32.pack(len(frame)) + frame)
                answer = _frame(broker)
                client.sendall(_INT32.pack(len(answer)) + answer)
            elif key == SASL_HANDSHAKE:
                mechanism = body[2:].decode()
                code = 0 if mechanism in MECHANISMS else UNSUPPORTED_MECHANISM
                offered = b"".join(_INT16.pack(len(name)) + name.encode() for name in MECHANISMS)
                _send(client, number, _INT16.pack(code) + _INT32.pack(len(MECHANISMS)) + offered)
                steps = None if code else self._exchange(mechanism)
                if steps is not None:
                    next(steps)
            elif key == SASL_AUTHENTICATE and steps is not None:
                if self._step(client, number, version, body, steps):
                    self.admitted.append(mechanism)
                    return
            else:
                raise Refused(f"API {key} before a login")

    def _step(self, client: socket.socket, number: int, version: int, body: bytes, steps: Exchange) -> bool:
        """Answer one message. Returns whether the client is authenticated."""
        reported = _read_bytes(body[1:]) if version >= FLEXIBLE_AUTHENTICATE else body[4:]
        try:
            reply, done = steps.send(reported)
        except Refused as refused:
            _send(client, number, _authenticated(version, AUTHENTICATION_FAILED, str(refused), b""))
            raise
        _send(client, number, _authenticated(version, 0, None, reply))
        return done

    def _exchange(self, mechanism: str) -> Exchange:
        """Takes the client's messages and yields the replies."""
        return self._plain() if mechanism == "PLAIN" else self._scram(HASHES[mechanism])

    def _plain(self) -> Exchange:
        _, user, password = (yield b"", False).decode().split("\0")
        if self._users.get(user) != password:
            raise Refused("Authentication failed: Invalid username or password")
        yield b"", True

    def _scram(self, name: str) -> Exchange:
        opening = (yield b"", False).decode().removeprefix("n,,")
        said = dict(part.split("=", 1) for part in opening.split(","))
        salt, nonce = secrets.token_bytes(16), said["r"] + secrets.token_hex(8)
        challenge = f"r={nonce},s={base64.b64encode(salt).decode()},i={ITERATIONS}"
        ending, _, proof = (yield challenge.encode(), False).decode().rpartition(",p=")
        password = self._users.get(said["n"])
        if password is None or f"r={nonce}" not in ending:
            raise Refused("Authentication failed during authentication due to invalid credentials with SASL mechanism")
        salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, ITERATIONS)
        signed = f"{opening},{challenge},{ending}".encode()
        client_key = hmac.digest(salted, b"Client Key", name)
        signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
        if bytes(a ^ b for a, b in zip(client_key, signature, strict=True)) != base64.b64decode(proof):
            raise Refused("Authentication failed during authentication due to invalid credentials with SASL mechanism")
        verdict = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
        yield b"v=" + base64.b64encode(verdict), True


def _authenticated(version: int, code: int, message: str | None, data: bytes) -> bytes:
    text = (message or "").encode()
    if version >= FLEXIBLE_AUTHENTICATE:
        said = b"\0" if message is None else _uvarint(len(text) + 1) + text
        return b"\0" + _INT16.pack(code) + said + _uvarint(len(data) + 1) + data + bytes(8) + b"\0"
    said = _INT16.pack(-1) if message is None else _INT16.pack(len(text)) + text
    return _INT16.pack(code) + said + _INT32.pack(len(data)) + data + bytes(8 if version else 0)


def _send(client: socket.socket, number: int, body: bytes) -> None:
    client.sendall(_INT32.pack(len(body) + 4) + _INT32.pack(number) + body)


def _frame(connection: socket.socket) -> bytes:
    return _exactly(connection, _INT32.unpack(_exactly(connection, 4))[0])


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise Refused("the connection ended")
        found += part
    return found


def _uvarint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _read_bytes(body: bytes) -> bytes:
    """Parse compact bytes."""
    size = shift = at = 0
    while True:
        size |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not body[at - 1] & 0x80:
            return body[at : at + size - 1]


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 18):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
