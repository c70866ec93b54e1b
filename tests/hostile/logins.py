"""The messages of logins, made by hand: an attacker's are wrong in one place."""

import base64
import hashlib
import hmac
import os
from dataclasses import dataclass, field
from typing import Any

from tests.hostile.frames import Peer

SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SEPARATOR = b"\x01"


def handshake(peer: Peer, mechanism: str) -> Any:
    """The response to SaslHandshake."""
    return peer.ask(SASL_HANDSHAKE, 1, {"mechanism": mechanism})


def authenticate(peer: Peer, message: bytes, version: int = 2) -> Any:
    """The response to SaslAuthenticate."""
    return peer.ask(SASL_AUTHENTICATE, version, {"auth_bytes": message})


def plain(name: str | bytes, password: str | bytes, acting: str | bytes = b"") -> bytes:
    """The message of PLAIN."""
    return b"\0".join(each.encode() if isinstance(each, str) else each for each in (acting, name, password))


def bearer(token: str, header: bytes = b"n,,", extensions: bytes = b"") -> bytes:
    """The first message of OAUTHBEARER."""
    return header + SEPARATOR + b"auth=Bearer " + token.encode() + SEPARATOR + extensions + SEPARATOR


@dataclass
class Scram:
    """The client's side of SCRAM. Every part of its messages can be replaced."""

    name: str
    password: str
    mechanism: str = "SCRAM-SHA-256"
    header: str = "n,,"
    nonce: str = field(default_factory=lambda: base64.b64encode(os.urandom(18)).decode())

    @property
    def bare(self) -> str:
        """The first message without its header."""
        return f"n={self.name},r={self.nonce}"

    def first(self) -> bytes:
        """The first message."""
        return f"{self.header}{self.bare}".encode()

    def final(
        self,
        challenge: bytes,
        *,
        binding: str | None = None,
        nonce: str | None = None,
        proof: bytes | None = None,
        iterations: int | None = None,
        extra: str = "",
    ) -> bytes:
        """The final message, for the broker's challenge."""
        parts = dict(part.split("=", 1) for part in challenge.decode().split(","))
        digest = HASHES[self.mechanism]
        rounds = iterations or int(parts["i"])
        salted = hashlib.pbkdf2_hmac(digest, self.password.encode(), base64.b64decode(parts["s"]), rounds)
        bound = binding if binding is not None else base64.b64encode(self.header.encode()).decode()
        unproved = f"c={bound},r={parts['r'] if nonce is None else nonce}{extra}"
        signed = f"{self.bare},{challenge.decode()},{unproved}".encode()
        client_key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
        made = bytes(a ^ b for a, b in zip(client_key, signature, strict=True)) if proof is None else proof
        return f"{unproved},p={base64.b64encode(made).decode()}".encode()


def log_in(peer: Peer, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Peer:
    """Log in; AssertionError if the broker refuses it."""
    assert not handshake(peer, mechanism).error_code
    if mechanism == "PLAIN":
        answer = authenticate(peer, plain(name, password))
    else:
        exchange = Scram(name, password, mechanism)
        challenge = authenticate(peer, exchange.first())
        assert not challenge.error_code, challenge
        answer = authenticate(peer, exchange.final(challenge.auth_bytes))
    assert not answer.error_code, answer
    return peer
