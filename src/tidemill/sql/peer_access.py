"""How a query reads from the other brokers: with proof that this broker knows the secret of the cluster, and over TLS.

Records are read with a broker's rights, from partitions that the client of the query may read. Tables are read with the
rights of the client: the other broker leaves out what the client may not see.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.request import Request

from tidemill.client.http import fetch
from tidemill.client.kafka.options import ClientOptions, PeerLogin, parse_addresses
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.peer_token import PeerCall, PeerClaims
from tidemill.security.peers import PeerTokens

ANSWER_S = 10.0
PEER_HEADER = "tidemill-peer"

MakeContext = Callable[[], ssl.SSLContext | None]
"""Makes the context for connections to other brokers; None where they use no TLS."""


@dataclass(frozen=True, slots=True)
class PeerAccess:
    """The access of one broker to the others."""

    tokens: PeerTokens
    secret: Callable[[], bytes]
    kafka_tls: MakeContext
    http_tls: MakeContext

    def kafka(self, bootstrap: str) -> ClientOptions:
        """The options of a Kafka client that reads as a broker of the cluster."""
        secret = self.secret()
        return ClientOptions(
            parse_addresses(bootstrap),
            client_id=f"broker-{self.tokens.node_id}",
            context=self.kafka_tls(),
            peer=PeerLogin(self.tokens.node_id, secret) if secret else None,
        )

    def post(
        self, node_id: int, http: tuple[str, int], path: str, body: bytes, rights: ClientRights, timeout_s: float
    ) -> bytes:
        """The answer of another broker to a JSON document; raises like `urllib.request.urlopen`."""
        headers = {"content-type": "application/json"}
        return self._fetch(node_id, http, "POST", path, rights, body=body, headers=headers, timeout_s=timeout_s)

    def table(self, node_id: int, http: tuple[str, int], name: str, rights: ClientRights) -> bytes:
        """The part of a table that another broker has, as an Arrow stream; raises like `urllib.request.urlopen`."""
        return self._fetch(node_id, http, "GET", f"/api/tables/{name}", rights, timeout_s=ANSWER_S)

    def _fetch(
        self,
        node_id: int,
        http: tuple[str, int],
        method: str,
        path: str,
        rights: ClientRights,
        *,
        timeout_s: float,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        context = self.http_tls()
        token = self.tokens.sign(
            PeerCall(f"{method} {path}", node_id, body), PeerClaims(self.tokens.node_id, rights.principal, rights.host)
        )
        host = f"[{http[0]}]" if ":" in http[0] else http[0]
        url = f"http{'s' if context is not None else ''}://{host}:{http[1]}{path}"
        sent = {**(headers or {}), PEER_HEADER: token}
        request = Request(url, data=body or None, headers=sent, method=method)  # noqa: S310 -- the scheme is ours
        return fetch(request, timeout_s=timeout_s, context=context)
