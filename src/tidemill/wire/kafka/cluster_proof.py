"""How two brokers prove to each other that they know the cluster's secret, without sending it.

SaslHandshake names the mechanism, then SaslAuthenticate carries two steps. The one who asks sends its number and a
nonce; the one who is asked answers with its own nonce and a proof over all three; if that proof is right, the asker
sends its proof. A proof is an HMAC-SHA256 and is bound to its direction, so that none can be sent back as the other.
"""

import hmac
from struct import Struct
from typing import NamedTuple

MECHANISM = "TIDEMILL-CLUSTER"
NONCE_BYTES = 32
_NODE = Struct(">i")


class Hello(NamedTuple):
    """The first step: who asks."""

    node_id: int
    nonce: bytes


def write_hello(hello: Hello) -> bytes:
    """The bytes of the first step."""
    return _NODE.pack(hello.node_id) + hello.nonce


def read_hello(data: bytes) -> Hello | None:
    """The first step, or None when it is none."""
    if len(data) != _NODE.size + NONCE_BYTES:
        return None
    return Hello(_NODE.unpack_from(data)[0], data[_NODE.size :])


def proof_of_asked(secret: bytes, hello: Hello, nonce: bytes) -> bytes:
    """What the broker that is asked proves with, together with its nonce."""
    return hmac.digest(secret, b"asked" + write_hello(hello) + nonce, "sha256")


def proof_of_asker(secret: bytes, hello: Hello, nonce: bytes) -> bytes:
    """What the broker that asks proves with."""
    return hmac.digest(secret, b"asker" + write_hello(hello) + nonce, "sha256")


def same(one: bytes, other: bytes) -> bool:
    """Whether two proofs are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(one, other)
