"""A login in progress: the messages of one mechanism, step by step."""

from typing import NamedTuple, Protocol

from tidemill.security.core.principal import Principal


class LoginStep(NamedTuple):
    """The answer to one message of a client. `principal` is None while the exchange continues."""

    answer: bytes
    principal: Principal | None = None
    expires_ms: int | None = None
    """When the login ends, by the wall clock; None if it does not end by itself."""


class LoginExchange(Protocol):
    """The server's side of one login. `claimed` is the name that the client claims, for the audit log, or empty."""

    claimed: str

    async def step(self, message: bytes) -> LoginStep:
        """Answer a message; SaslAuthenticationFailed when the login is refused."""
