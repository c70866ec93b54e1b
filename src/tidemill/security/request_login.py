"""The login of a request over HTTP or gRPC: its header `authorization` becomes a principal.

Every request carries its login, so a login that was right is known from then on: it is checked each time, but passes
the limits below, which are for guesses.

An address may have few guesses in progress, and few more that wait. More are refused. The answer to a wrong one comes
late, and it counts as in progress until then: a client that guesses passwords slows down only its own address.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.model.security_settings import SecuritySettings
from tidemill.security.address_turns import AddressTurns
from tidemill.security.audit import Audit
from tidemill.security.authenticator import KEY_BYTES, Authenticator
from tidemill.security.core.authorization_header import BASIC, BEARER, BearerLogin, parse_authorization
from tidemill.security.core.failed_logins import FailedLogins, network_of
from tidemill.security.core.oauth import INVALID_TOKEN, TokenRejected
from tidemill.security.core.plain import PlainLogin
from tidemill.security.core.principal import Principal

GUESSES_AT_ONCE = 4
"""Guesses of one address that are checked, or answered late, at the same time."""
GUESSES_WAITING_MAX = 64
"""Guesses of one address that wait; more are refused."""
KNOWN_MAX = 10_000
"""Logins that are known to have been right."""
UNPARSED = "unknown"
"""The mechanism of a login that is missing or malformed, in the audit log."""


class RequestUser(NamedTuple):
    """The user of a request. `expires_ms` is the end of the login by the wall clock; None if it has none."""

    principal: Principal
    expires_ms: int | None = None


class RequestLogin:
    """The logins of one broker's gRPC and HTTP servers. `steady_s` is a clock that cannot be set."""

    def __init__(
        self,
        authenticator: Authenticator,
        audit: Audit,
        settings: SecuritySettings,
        *,
        token_bytes: Callable[[int], bytes],
        steady_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._authenticator = authenticator
        self._audit = audit
        self._settings = settings
        self._steady_s = steady_s
        self._sleep = sleep
        self._key = token_bytes(KEY_BYTES)
        self._known: dict[bytes, None] = {}
        self._failed = FailedLogins()
        self._turns = AddressTurns(GUESSES_AT_ONCE, GUESSES_WAITING_MAX)

    async def user(self, authorization: str | None, client_host: str, server: str) -> RequestUser:
        """The user of a request to `server` (`grpc`, `http`); SaslAuthenticationFailed, in one line, otherwise.

        RequestTimedOut: too many logins at once, so this one was not checked.
        """
        try:
            login = parse_authorization(authorization)
        except SaslAuthenticationFailed as error:  # no guess
            self._audit.login_failed("", client_host, UNPARSED, server, str(error))
            raise
        return await self.check(login, client_host, server)

    async def check(self, login: PlainLogin | BearerLogin, client_host: str, server: str) -> RequestUser:
        """The user of a login that did not come as a header; it raises like `user`."""
        mark = self._mark(login)
        if mark in self._known:
            return await self._check_known(login, mark, client_host, server)
        async with self._turns.of(network_of(client_host)):
            found = await self._check_guess(login, client_host, server)
        self._note(mark)
        self._audit.login_succeeded(found.principal, client_host, _mechanism(login), server)
        return found

    def is_known(self, authorization: str | None) -> bool:
        """Whether this login was right before; it may not be any more."""
        try:
            return self._mark(parse_authorization(authorization)) in self._known
        except SaslAuthenticationFailed:
            return False

    def _mark(self, login: PlainLogin | BearerLogin) -> bytes:
        return hmac.digest(self._key, repr(tuple(login)).encode("utf-8", "surrogatepass"), "sha256")

    async def _check_known(
        self, login: PlainLogin | BearerLogin, mark: bytes, client_host: str, server: str
    ) -> RequestUser:
        """Check a login that was right before. If it is wrong now, it is a guess the next time."""
        try:
            return await self._check(login, client_host)
        except SaslAuthenticationFailed as error:
            self._known.pop(mark, None)
            self._log_failure(login, error, client_host, server)
            raise _shown(error) from None

    async def _check_guess(self, login: PlainLogin | BearerLogin, client_host: str, server: str) -> RequestUser:
        try:
            return await self._check(login, client_host)
        except SaslAuthenticationFailed as error:
            self._log_failure(login, error, client_host, server)
            least_s = self._settings.connection_failed_authentication_delay_ms / 1000
            await self._sleep(max(least_s, self._failed.wait_s(network_of(client_host), self._steady_s())))
            raise _shown(error) from None

    async def _check(self, login: PlainLogin | BearerLogin, client_host: str) -> RequestUser:
        if isinstance(login, PlainLogin):
            return RequestUser(await self._authenticator.check_password(login.name, login.password, client_host))
        return RequestUser(*await self._authenticator.check_token(login.token, self._settings))

    def _log_failure(
        self, login: PlainLogin | BearerLogin, error: SaslAuthenticationFailed, client_host: str, server: str
    ) -> None:
        name = login.name if isinstance(login, PlainLogin) else ""
        self._audit.login_failed(name, client_host, _mechanism(login), server, str(error))

    def _note(self, mark: bytes) -> None:
        if len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[mark] = None


def _mechanism(login: PlainLogin | BearerLogin) -> str:
    return BASIC if isinstance(login, PlainLogin) else BEARER


def _shown(error: SaslAuthenticationFailed) -> SaslAuthenticationFailed:
    """The error for the client: why a token is not valid is for the log of the broker."""
    return SaslAuthenticationFailed(INVALID_TOKEN) if isinstance(error, TokenRejected) else error
