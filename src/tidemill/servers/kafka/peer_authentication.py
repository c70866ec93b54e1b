"""Who asks: brokers of this cluster prove that they know its secret; clients need not say anything.

A proved connection may fetch as a replica (and nobody else may: CVE-2018-1288). Without a secret nobody is believed.
"""

from secrets import token_bytes
from typing import Any

import structlog

from tidemill.model.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from tidemill.servers.kafka.api import Api, Call
from tidemill.wire.kafka.cluster_proof import (
    MECHANISM,
    NONCE_BYTES,
    proof_of_asked,
    proof_of_asker,
    read_hello,
    same,
    write_hello,
)

log = structlog.get_logger("tidemill.kafka")


async def sasl_handshake(call: Call, request: Any) -> Any:
    """Say which mechanism is spoken here: that of brokers, in a cluster that has a secret."""
    offered = (MECHANISM,) if call.broker.cluster_secret else ()
    if request.mechanism not in offered:
        return call.response(error_code=UnsupportedSaslMechanism.code, mechanisms=offered)
    call.identity.offered = b""
    return call.response(error_code=0, mechanisms=offered)


async def sasl_authenticate(call: Call, request: Any) -> Any:
    """One of the two steps."""
    identity = call.identity
    offered, identity.offered = identity.offered, None
    if offered is None:
        raise IllegalSaslState("SaslHandshake comes first")
    secret = call.broker.cluster_secret
    if not offered:
        hello = read_hello(bytes(request.auth_bytes))
        if hello is None or hello.node_id < 0:
            raise SaslAuthenticationFailed("this is not how brokers greet each other")
        nonce = token_bytes(NONCE_BYTES)
        identity.offered = write_hello(hello) + nonce
        return _step(call, nonce + proof_of_asked(secret, hello, nonce))
    hello = read_hello(offered[:-NONCE_BYTES])
    if hello is None or not same(proof_of_asker(secret, hello, offered[-NONCE_BYTES:]), bytes(request.auth_bytes)):
        log.warning("a broker with another cluster secret was refused", peer=call.client_host)
        raise SaslAuthenticationFailed("the cluster secret is another one here")
    identity.node_id = hello.node_id
    return _step(call, b"")


def _step(call: Call, auth_bytes: bytes) -> Any:
    return call.response(error_code=0, error_message=None, auth_bytes=auth_bytes)


APIS = [
    Api(key=17, versions=(0, 1), served_from=1, handle=sasl_handshake),
    Api(key=36, versions=(0, 2), handle=sasl_authenticate),
]
