"""The login of a broker for a client of its HTTP server.

The HTTP server has authenticated the client. It opens a connection on which every request has the rights of that
client, and counts for its quotas. The token of the login is signed with the secret of the cluster, for this broker, and
is used once.
"""

from struct import Struct

from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.security.core.peer_token import KAFKA_LOGIN
from tidemill.security.core.principal import ANONYMOUS
from tidemill.security.login import LoginStep
from tidemill.servers.kafka.api import ConnectionIdentity

_NODE = Struct(">i")


class ActingExchange:
    """One login: the client asks for the node id of this broker, then sends the token for it."""

    def __init__(self, broker: BrokerNode, identity: ConnectionIdentity) -> None:
        self._broker = broker
        self._identity = identity
        self._has_asked = False
        self.claimed = ""

    async def step(self, message: bytes) -> LoginStep:
        """The answer to a message; with a principal when the login is complete."""
        if not self._has_asked:
            self._has_asked = True
            return LoginStep(_NODE.pack(self._broker.node_id))
        try:
            token = message.decode("ascii")
        except UnicodeDecodeError:
            raise SaslAuthenticationFailed("the token of the broker is not ASCII") from None
        claims = self._broker.security.peers.check(KAFKA_LOGIN, b"", token)
        self.claimed = claims.principal.name
        if claims.principal == ANONYMOUS and not self._identity.is_open:
            raise SaslAuthenticationFailed(
                "the Kafka listener requires a login, and the client of the HTTP server has none; "
                "set tidemill.http.security, and log in"
            )
        self._identity.host = claims.host
        return LoginStep(b"", claims.principal)
