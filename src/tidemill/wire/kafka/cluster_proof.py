"""Proves to each of two brokers that the other knows the cluster's secret, without sending it.

SaslHandshake names the mechanism, then SaslAuthenticate carries two steps. The connecting broker sends its id and a
nonce. The accepting broker responds with its own nonce and a proof over all three. If that proof is valid, the
connecting broker sends its own proof. A proof is an HMAC-SHA256 that includes its direction, so that it cannot be sent
back as the other proof.
"""

import hmac
from struct import Struct
from typing import NamedTuple

MECHANISM = "TIDEMILL-CLUSTER"
ACTING_MECHANISM = "TIDEMILL-ACTING"
"""A broker logs in for a client of its HTTP server. The accepting broker first sends its node id. The connecting broker
answers with a token for that broker, which names the client."""
NONCE_BYTES = 32
_NODE = Struct(">i")


class Hello(NamedTuple):
    """The first step: id and nonce of the connecting broker."""

    node_id: int
    nonce: bytes


def write_hello(hello: Hello) -> bytes:
    """Return the bytes of the first step."""
    return _NODE.pack(hello.node_id) + hello.nonce


def read_hello(data: bytes) -> Hello | None:
    """Return the first step, or None when the bytes are malformed."""
    if len(data) != _NODE.size + NONCE_BYTES:
        return None
    return Hello(_NODE.unpack_from(data)[0], data[_NODE.size :])


def proof_of_asked(secret: bytes, hello: Hello, nonce: bytes) -> bytes:
    """Return the proof of the accepting broker, which it sends with its nonce."""
    return hmac.digest(secret, b"asked" + write_hello(hello) + nonce, "sha256")


def proof_of_asker(secret: bytes, hello: Hello, nonce: bytes) -> bytes:
    """Return the proof of the connecting broker."""
    return hmac.digest(secret, b"asker" + write_hello(hello) + nonce, "sha256")


def same(one: bytes, other: bytes) -> bool:
    """Compare two proofs in constant time."""
    return hmac.compare_digest(one, other)
