"""Calls between the brokers of a cluster over gRPC and HTTP: the sender signs them, the receiver checks them."""

from collections.abc import Callable

from tidemill.security.core.peer_token import (
    SIGNER_BYTES,
    OpenedToken,
    PeerCall,
    PeerClaims,
    PeerStamp,
    PeerTokenRejected,
    SeenTokens,
    open_peer_token,
    write_peer_token,
)


class PeerTokens:
    """The tokens of one broker. `secret` is the cluster's, or empty; `clock_ms` is the wall clock."""

    def __init__(
        self,
        node_id: int,
        secret: Callable[[], bytes],
        *,
        token_bytes: Callable[[int], bytes],
        clock_ms: Callable[[], int],
    ) -> None:
        self._node_id = node_id
        self._secret = secret
        self._clock_ms = clock_ms
        self._signer = token_bytes(SIGNER_BYTES)
        self._number = 0
        self._seen = SeenTokens()

    @property
    def node_id(self) -> int:
        """The number of this broker."""
        return self._node_id

    def sign(self, call: PeerCall, claims: PeerClaims) -> str:
        """The token of one call, which must be sent once."""
        self._number += 1
        return write_peer_token(self._secret(), call, claims, PeerStamp(self._signer, self._number, self._clock_ms()))

    def check(self, purpose: str, body: bytes, token: str) -> PeerClaims:
        """Who sends a call to this broker, and for which client; PeerTokenRejected when it is not a valid one."""
        opened = self.open(purpose, token)
        return self.use(opened, has_body=opened.is_for(body))

    def open(self, purpose: str, token: str) -> OpenedToken:
        """The first half of `check`, before the body has arrived."""
        return open_peer_token(self._secret(), purpose, self._node_id, token, self._clock_ms())

    def use(self, opened: OpenedToken, *, has_body: bool) -> PeerClaims:
        """The second half of `check`. A token is used up by its own body only."""
        if not has_body:
            raise PeerTokenRejected("the token of the broker is for another body")
        if not self._seen.add(opened.stamp, self._clock_ms()):
            raise PeerTokenRejected("the token of the broker was used before")
        return opened.claims
