"""What can go wrong before a broker says anything; what brokers say is in `tidemill.model.errors`.

Both kinds are a TidemillError whose text is one line that names the address, topic or option in question.
"""

from tidemill.model.errors import TidemillError


class ClientError(TidemillError):
    """The client cannot do what it was asked."""


class InvalidClientOption(ClientError):
    """An option of the client has no such value."""


class BrokerUnreachable(ClientError):
    """No broker answers."""

    retriable = True


class ConnectionLost(ClientError):
    """The connection to a broker ended in the middle of a request."""

    retriable = True


class AuthenticationFailed(ClientError):
    """The broker does not accept who we say we are."""


class NotKafka(ClientError):
    """Something else listens at the address."""


class NotServed(ClientError):
    """The broker does not know a request, or none of its versions that this client knows."""
