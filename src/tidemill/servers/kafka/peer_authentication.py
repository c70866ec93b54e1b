"""SaslHandshake and SaslAuthenticate: a broker of this cluster proves that it knows the cluster secret.

Only an authenticated connection may fetch as a replica (CVE-2018-1288). Without a cluster secret, no connection can
authenticate. Clients do not authenticate.
"""

from secrets import token_bytes
from typing import TYPE_CHECKING

import structlog

from tidemill.model.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from tidemill.servers.kafka.api import Call
from tidemill.wire.kafka.cluster_proof import (
    MECHANISM,
    NONCE_BYTES,
    proof_of_asked,
    proof_of_asker,
    read_hello,
    same,
    write_hello,
)

if TYPE_CHECKING:
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
    from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

log = structlog.get_logger("tidemill.kafka")


async def sasl_handshake(
    call: Call["SaslHandshakeResponse"], request: "SaslHandshakeRequest"
) -> "SaslHandshakeResponse":
    """Offer the mechanism of brokers, if the cluster has a secret."""
    offered = (MECHANISM,) if call.broker.cluster_secret else ()
    if request.mechanism not in offered:
        return call.response(error_code=UnsupportedSaslMechanism.code, mechanisms=offered)
    call.identity.offered = b""
    return call.response(error_code=0, mechanisms=offered)


async def sasl_authenticate(
    call: Call["SaslAuthenticateResponse"], request: "SaslAuthenticateRequest"
) -> "SaslAuthenticateResponse":
    """Run one of the two steps: exchange nonces, then check the proof."""
    identity = call.identity
    offered, identity.offered = identity.offered, None
    if offered is None:
        raise IllegalSaslState("SaslAuthenticate was sent without SaslHandshake; send SaslHandshake first")
    secret = call.broker.cluster_secret
    if not offered:
        hello = read_hello(bytes(request.auth_bytes))
        if hello is None or hello.node_id < 0:
            raise SaslAuthenticationFailed(
                "the first message of SaslAuthenticate is not valid; only brokers authenticate here"
            )
        nonce = token_bytes(NONCE_BYTES)
        identity.offered = write_hello(hello) + nonce
        return _step(call, nonce + proof_of_asked(secret, hello, nonce))
    hello = read_hello(offered[:-NONCE_BYTES])
    if hello is None or not same(proof_of_asker(secret, hello, offered[-NONCE_BYTES:]), bytes(request.auth_bytes)):
        log.warning("broker_authentication_failed", peer=call.client_host, reason="cluster secrets differ")
        raise SaslAuthenticationFailed("the cluster secrets differ; set the same cluster secret on all brokers")
    identity.node_id = hello.node_id
    return _step(call, b"")


def _step(call: Call["SaslAuthenticateResponse"], auth_bytes: bytes) -> "SaslAuthenticateResponse":
    return call.response(error_code=0, error_message=None, auth_bytes=auth_bytes)
