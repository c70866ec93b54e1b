"""Errors of the client itself. The errors that brokers return are in `tidemill.model.errors`.

Both kinds are a TidemillError with a text of one line that names the address, topic or option.
"""

from tidemill.model.errors import TidemillError


class ClientError(TidemillError):
    """The client cannot carry out a call."""


class InvalidClientOption(ClientError):
    """A client option has an invalid value."""


class BrokerUnreachable(ClientError):
    """No broker answers at the address."""

    retriable = True


class ConnectionLost(ClientError):
    """The connection to a broker ended during a request."""

    retriable = True


class AuthenticationFailed(ClientError):
    """The broker rejected the credentials, or its own identity was not accepted."""


class NotKafka(ClientError):
    """The server at the address does not use the Kafka protocol."""


class NotServed(ClientError):
    """The broker does not support a request in any version that this client supports."""
