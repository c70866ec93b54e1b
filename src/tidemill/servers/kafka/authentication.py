"""SaslHandshake and SaslAuthenticate: clients log in, and brokers of this cluster prove that they know its secret.

A broker may authenticate on every listener, and only an authenticated broker may fetch as a replica (CVE-2018-1288).
Clients log in on listeners whose protocol is SASL_PLAINTEXT or SASL_SSL, by the mechanisms of that listener. A client
may authenticate again on an open connection (KIP-368), as the same user.
"""

import asyncio
from datetime import timedelta
from secrets import token_bytes
from typing import TYPE_CHECKING

import structlog

from tidemill.model.errors import (
    IllegalSaslState,
    SaslAuthenticationFailed,
    TidemillError,
    UnsupportedSaslMechanism,
)
from tidemill.model.security_settings import SecuritySettings
from tidemill.security.core.principal import ANONYMOUS
from tidemill.security.login import LoginStep
from tidemill.servers.kafka.acting_login import ActingExchange
from tidemill.servers.kafka.api import Call
from tidemill.wire.kafka.cluster_proof import (
    ACTING_MECHANISM,
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
    """Begin a login by one of the mechanisms of the listener, or by the one of brokers if the cluster has a secret."""
    identity = call.identity
    identity.exchange, identity.offered = None, None
    offered = _client_mechanisms(call)
    if call.broker.cluster_secret and request.mechanism == MECHANISM:
        identity.offered = b""
        return call.response(error_code=0, mechanisms=(*offered, MECHANISM))
    # Clients see the mechanism of brokers only where there is no other one.
    shown = offered or ((MECHANISM,) if call.broker.cluster_secret else ())
    if request.mechanism == ACTING_MECHANISM and not identity.mechanism:
        identity.exchange, identity.mechanism = ActingExchange(call.broker, identity), request.mechanism
        return call.response(error_code=0, mechanisms=shown)
    if request.mechanism not in offered:
        identity.has_failed = not identity.is_open
        return call.response(error_code=UnsupportedSaslMechanism.code, mechanisms=shown)
    if identity.mechanism and request.mechanism != identity.mechanism:
        identity.has_failed = True
        raise IllegalSaslState(f"authenticate again with {identity.mechanism}, the mechanism of the first login")
    identity.exchange = call.broker.security.authenticator.begin(request.mechanism, _settings(call), call.client_host)
    identity.mechanism = request.mechanism
    return call.response(error_code=0, mechanisms=shown)


def _client_mechanisms(call: Call) -> tuple[str, ...]:
    listener = call.identity.listener
    if listener is None or not listener.requires_login:
        return ()
    return _settings(call).sasl_enabled_mechanisms


def _settings(call: Call) -> SecuritySettings:
    return call.broker.settings.of_listener(call.listener)


async def sasl_authenticate(
    call: Call["SaslAuthenticateResponse"], request: "SaslAuthenticateRequest"
) -> "SaslAuthenticateResponse":
    """Take the next message of a login."""
    if call.identity.exchange is None:
        return _broker_step(call, bytes(request.auth_bytes))
    exchange, call.identity.exchange = call.identity.exchange, None
    try:
        step = await exchange.step(bytes(request.auth_bytes))
        lifetime_ms = _accept(call, step)
    except TidemillError as error:
        await _refuse(call, exchange.claimed, error)
        raise
    if step.principal is None:
        call.identity.exchange = exchange
    lifetime = timedelta(milliseconds=lifetime_ms)
    return call.response(error_code=0, error_message=None, auth_bytes=step.answer, session_lifetime=lifetime)


def _accept(call: Call, step: LoginStep) -> int:
    """Log the client in if this was the last step; how long the login lasts, 0 for ever."""
    if step.principal is None:
        return 0
    identity, security = call.identity, call.broker.security
    if identity.principal is not ANONYMOUS and identity.principal != step.principal:
        raise SaslAuthenticationFailed(f"this connection belongs to {identity.principal}; open another one")
    now_ms = call.broker.environment.clock_ms()
    limits = [each for each in (step.expires_ms, _reauthentication_ms(call, now_ms)) if each is not None]
    identity.expires_ms = min(limits) if limits else None
    identity.principal = step.principal
    if identity.mechanism == ACTING_MECHANISM:  # the HTTP server has logged the client in, and noted it
        return 0
    security.audit.login_succeeded(step.principal, call.client_host, identity.mechanism, call.listener)
    return 0 if identity.expires_ms is None else max(1, identity.expires_ms - now_ms)


def _reauthentication_ms(call: Call, now_ms: int) -> int | None:
    period_ms = call.broker.settings.security.connections_max_reauth_ms
    return now_ms + period_ms if period_ms else None


async def _refuse(call: Call, claimed: str, error: TidemillError) -> None:
    """Answer a failed login late, and close the connection after the answer."""
    identity = call.identity
    identity.has_failed = True
    call.broker.security.audit.login_failed(claimed, call.client_host, identity.mechanism, call.listener, str(error))
    await asyncio.sleep(call.broker.settings.security.connection_failed_authentication_delay_ms / 1000)


def _broker_step(call: Call["SaslAuthenticateResponse"], message: bytes) -> "SaslAuthenticateResponse":
    """Run one of the two steps of a broker: exchange nonces, then check the proof."""
    identity = call.identity
    offered, identity.offered = identity.offered, None
    identity.has_failed = not identity.is_open
    if offered is None:
        raise IllegalSaslState("SaslAuthenticate was sent without SaslHandshake; send SaslHandshake first")
    secret = call.broker.cluster_secret
    if not offered:
        hello = read_hello(message)
        if hello is None or hello.node_id < 0:
            raise SaslAuthenticationFailed(
                "the first message of SaslAuthenticate is not valid; only brokers authenticate here"
            )
        nonce = token_bytes(NONCE_BYTES)
        identity.offered = write_hello(hello) + nonce
        identity.has_failed = False
        return _step(call, nonce + proof_of_asked(secret, hello, nonce))
    hello = read_hello(offered[:-NONCE_BYTES])
    if hello is None or not same(proof_of_asker(secret, hello, offered[-NONCE_BYTES:]), message):
        log.warning("broker_authentication_failed", peer=call.client_host, reason="cluster secrets differ")
        raise SaslAuthenticationFailed("the cluster secrets differ; set the same cluster secret on all brokers")
    identity.node_id = hello.node_id
    identity.has_failed = False
    return _step(call, b"")


def _step(call: Call["SaslAuthenticateResponse"], auth_bytes: bytes) -> "SaslAuthenticateResponse":
    return call.response(error_code=0, error_message=None, auth_bytes=auth_bytes)
