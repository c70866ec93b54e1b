"""Finds out who has sent a call: a broker of this cluster that forwards it, a user, or the owner of a certificate.

A forwarded call has a token in its metadata that only a broker of this cluster can make. A user logs in with the
metadata `authorization`. A client certificate counts where the server requires one, and the call has no other login.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.security.core.peer_token import OpenedToken, PeerTokenRejected
from tidemill.security.core.principal import ANONYMOUS
from tidemill.security.security import Security
from tidemill.servers.grpc.call import SERVER_NAME, Caller, host_of

if TYPE_CHECKING:
    from tidemill.servers.grpc.certificate_names import CertificateNames

AUTHORIZATION_KEY = "authorization"
PEER_KEY = "tidemill-peer"
HASHED_HERE_BYTES_MAX = 256 * 1024
"""Larger bodies of forwarded calls are hashed in a thread."""

Metadata = Sequence[tuple[str, str | bytes]]


class GrpcLogin:
    """The logins of one gRPC server. `names` gives the owners of certificates, where clients need one."""

    def __init__(self, security: Security, *, requires_login: bool, names: "CertificateNames | None" = None) -> None:
        self._security = security
        self._requires_login = requires_login
        self._names = names

    def is_expected(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
        """Whether the body of a call may be received before its login is checked: its client is known already."""
        if not self._requires_login or self._names is not None:
            return True
        known = tuple(metadata or ())
        return _value(known, PEER_KEY) is None and self._security.request_login.is_known(
            _value(known, AUTHORIZATION_KEY)
        )

    async def caller(self, method: str, context: Any) -> Caller:
        """Who calls; SaslAuthenticationFailed if the client has no valid login and needs one."""
        metadata = tuple(context.invocation_metadata() or ())
        host = host_of(str(context.peer()))
        token = _value(metadata, PEER_KEY)
        if token is not None:
            return self._broker(method, token, host)
        authorization = _value(metadata, AUTHORIZATION_KEY)
        if self._requires_login and authorization is not None:
            found = await self._security.request_login.user(authorization, host, SERVER_NAME)
            return Caller(found.principal, host, found.expires_ms, authorization)
        if self._names is not None:
            return Caller(self._names.principal(context), host)
        if self._requires_login:
            await self._security.request_login.user(None, host, SERVER_NAME)
        return Caller(ANONYMOUS, host)

    def _broker(self, method: str, token: str, host: str) -> Caller:
        try:
            opened = self._security.peers.open(method, token)
        except PeerTokenRejected as error:
            self._security.audit.login_failed("", host, "PEER", SERVER_NAME, str(error))
            raise
        claims = opened.claims
        return Caller(claims.principal, claims.host, claims.expires_ms or None, forwarded=opened)

    async def check_body(self, forwarded: OpenedToken, body: bytes) -> None:
        """Raise PeerTokenRejected when the token of a broker was made for another body, or was used before."""
        is_large = len(body) > HASHED_HERE_BYTES_MAX
        has_body = await asyncio.to_thread(forwarded.is_for, body) if is_large else forwarded.is_for(body)
        self._security.peers.use(forwarded, has_body=has_body)


def _value(metadata: Metadata, wanted: str) -> str | None:
    found = [value for key, value in metadata if key == wanted]
    if len(found) > 1:
        raise SaslAuthenticationFailed(f"the call has {len(found)} values of {wanted}; send one")
    return str(found[0]) if found else None
