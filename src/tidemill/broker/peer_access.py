"""How this broker reaches the others for its clients: which secret, and which TLS of which server."""

import ssl

from tidemill.broker.broker import BrokerNode
from tidemill.model.listeners import HTTP, inter_broker_listener, server_security
from tidemill.security.tls import peer_context
from tidemill.sql.peer_access import PeerAccess


def peer_access(broker: BrokerNode) -> PeerAccess:
    """The access of a broker to the others, which have the same settings of security."""
    settings, listeners = broker.settings, broker.identity.listeners

    def kafka_tls() -> ssl.SSLContext | None:
        listener = inter_broker_listener(settings.security, listeners)
        if listener is None or not listener.uses_tls:
            return None
        # The HTTP server uses the Kafka server of its own broker, too.
        return peer_context(settings.of_listener(listener.name), listener.name, trusts_itself=True)

    def http_tls() -> ssl.SSLContext | None:
        http = server_security(HTTP, settings, listeners)
        if not http.uses_tls:
            return None
        return peer_context(http.settings, HTTP)

    return PeerAccess(broker.security.peers, lambda: broker.cluster_secret, kafka_tls, http_tls)
