"""Logs clients in: SCRAM, PLAIN, OAUTHBEARER, and the passwords and tokens of HTTP and gRPC.

A password is stretched in a thread, and few at a time, so that logins cannot stop the event loop. A password that was
right is remembered for a while as a keyed hash, because clients of HTTP and gRPC send it with every request.
"""

import asyncio
import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING

import structlog

from tidemill.model.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from tidemill.model.security_settings import SecuritySettings
from tidemill.security.address_turns import AddressTurns
from tidemill.security.core.event_limiter import EventLimiter
from tidemill.security.core.failed_logins import network_of
from tidemill.security.core.oauth import (
    FAILURE,
    INVALID_TOKEN,
    TokenRejected,
    TokenRules,
    TokenUser,
    authorization_id,
    check_claims,
    parse_bearer,
)
from tidemill.security.core.plain import check_lengths, parse_plain
from tidemill.security.core.principal import Principal, user
from tidemill.security.core.scram import (
    BY_LABEL,
    WRONG_LOGIN,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    decoy,
    has_password,
    salted_password,
)
from tidemill.security.login import LoginExchange, LoginStep
from tidemill.security.users import Users

if TYPE_CHECKING:
    from tidemill.security.token_keys import TokenKeys

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
STRETCH_THREADS = 2
STRETCH_WAITING_MAX = 1024
"""Passwords of one address that wait to be stretched; more logins are refused until it is less."""
REMEMBERED_MAX = 1_000
REMEMBERED_S = 60.0
NONCE_BYTES = 24
KEY_BYTES = 32

log = structlog.get_logger("tidemill.security")


class Authenticator:
    """The logins of one broker.

    `token_bytes` makes random bytes, `steady_s` is a clock that cannot be set, `clock_ms` is the wall clock. Users that
    do not exist get challenges by `cluster_secret`, so that they are the same on all brokers and after a restart.
    """

    def __init__(
        self,
        users: Users,
        *,
        token_bytes: Callable[[int], bytes],
        steady_s: Callable[[], float],
        clock_ms: Callable[[], int],
        cluster_secret: Callable[[], bytes] = lambda: b"",
    ) -> None:
        self._users = users
        self._cluster_secret = cluster_secret
        self._clock_ms = clock_ms
        self._token_keys: dict[str, TokenKeys] = {}
        self._token_bytes = token_bytes
        self._steady_s = steady_s
        self._decoy_key = token_bytes(KEY_BYTES)
        self._cache_key = token_bytes(KEY_BYTES)
        self._remembered: dict[bytes, tuple[float, int]] = {}
        self._rejections = EventLimiter(steady_s)
        self._threads = ThreadPoolExecutor(STRETCH_THREADS, "login")
        # Every address has its own queue for the threads, so that a flood from one delays no other.
        self._turns = AddressTurns(STRETCH_THREADS, STRETCH_WAITING_MAX)

    def begin(self, mechanism: str, settings: SecuritySettings, client_host: str) -> LoginExchange:
        """The server's side of a login by this mechanism, with the settings of the listener."""
        if mechanism == PLAIN:
            return _PlainExchange(self, client_host)
        if mechanism == OAUTHBEARER:
            return _BearerExchange(self, settings)
        found = BY_LABEL.get(mechanism)
        if found is None:
            raise UnsupportedSaslMechanism(f"{mechanism[:40]} is not a mechanism of this broker")
        return _ScramExchange(self, ScramServer(found, self._token_bytes(NONCE_BYTES).hex()), found)

    def credential(self, name: str, mechanism: ScramMechanism) -> tuple[ScramCredential, bool]:
        """The credential of a user, and True; for another user one that no password belongs to, and False."""
        found = self._users.find(name)
        known = None if found is None else found.credentials.get(mechanism)
        if known is not None:
            return known, True
        secret = self._cluster_secret()
        key = hmac.digest(secret, b"users that do not exist", "sha256") if secret else self._decoy_key
        return decoy(mechanism, name, key, self._users.shapes(mechanism)), False

    async def check_password(self, name: str, password: str, client_host: str) -> Principal:
        """The principal of a user with this password; SaslAuthenticationFailed otherwise."""
        check_lengths(name, password)
        seen = hmac.digest(self._cache_key, f"{len(name)}:{name}{password}".encode("utf-8", "surrogatepass"), "sha256")
        if self._is_remembered(seen):
            return user(name)
        version = self._users.version
        credential, is_known = self._any_credential(name)
        async with self._turns.of(network_of(client_host)):
            salted = await asyncio.get_running_loop().run_in_executor(
                self._threads,
                salted_password,
                credential.mechanism,
                password,
                credential.salt,
                credential.iterations,
            )
        if not (has_password(credential, salted) and is_known):
            raise SaslAuthenticationFailed(WRONG_LOGIN)
        self._remember(seen, version)
        return user(name)

    async def check_token(self, token: str, settings: SecuritySettings) -> TokenUser:
        """The user of a token of the configured issuer; TokenRejected otherwise."""
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        if not url:
            raise TokenRejected("this broker accepts no tokens")
        keys = await self._keys_of(url, settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000)
        rules = TokenRules(
            settings.sasl_oauthbearer_expected_issuer,
            settings.sasl_oauthbearer_expected_audience,
            settings.sasl_oauthbearer_sub_claim_name,
            settings.sasl_oauthbearer_clock_skew_seconds,
        )
        return check_claims(await keys.claims(token), rules, self._clock_ms())

    def log_rejection(self, reason: str) -> None:
        """Log why a token was not accepted; a client can repeat it without end, so not every time."""
        counts = self._rejections.admit((reason,))
        if counts is not None:
            log.warning("token_rejected", reason=reason, **counts)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _keys_of(self, url: str, refresh_s: float) -> "TokenKeys":
        if url not in self._token_keys:
            # The library for tokens takes 0.1 s to load, and few brokers need it.
            module = await asyncio.to_thread(import_module, "tidemill.security.token_keys")
            self._token_keys.setdefault(url, module.TokenKeys(url, refresh_s, self._steady_s))
        return self._token_keys[url]

    def _any_credential(self, name: str) -> tuple[ScramCredential, bool]:
        for mechanism in (ScramMechanism.SHA_512, ScramMechanism.SHA_256):
            credential, is_known = self.credential(name, mechanism)
            if is_known:
                return credential, True
        return self.credential(name, ScramMechanism.SHA_512)

    def _is_remembered(self, seen: bytes) -> bool:
        until, version = self._remembered.get(seen, (0.0, -1))
        return self._steady_s() < until and version == self._users.version

    def _remember(self, seen: bytes, version: int) -> None:
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[seen] = (self._steady_s() + REMEMBERED_S, version)


class _PlainExchange:
    """A login by PLAIN: one message."""

    def __init__(self, authenticator: Authenticator, client_host: str) -> None:
        self._authenticator = authenticator
        self._client_host = client_host
        self.claimed = ""

    async def step(self, message: bytes) -> LoginStep:
        """Check the user and the password."""
        self.claimed, password = parse_plain(message)
        found = await self._authenticator.check_password(self.claimed, password, self._client_host)
        return LoginStep(b"", found)


class _ScramExchange:
    """A login by SCRAM: two messages. The broker computes little: the client stretches the password."""

    def __init__(self, authenticator: Authenticator, server: ScramServer, mechanism: ScramMechanism) -> None:
        self._authenticator = authenticator
        self._server = server
        self._mechanism = mechanism
        self._has_begun = False
        self.claimed = ""

    async def step(self, message: bytes) -> LoginStep:
        """Send the challenge, then check the proof."""
        if not self._has_begun:
            self.claimed = self._server.first(message)
            self._has_begun = True
            credential, is_known = self._authenticator.credential(self.claimed, self._mechanism)
            return LoginStep(self._server.challenge(credential, is_known=is_known))
        return LoginStep(self._server.finish(message), user(self.claimed))


class _BearerExchange:
    """A login by OAUTHBEARER: one message. After a token that is not accepted, the client must end the exchange."""

    def __init__(self, authenticator: Authenticator, settings: SecuritySettings) -> None:
        self._authenticator = authenticator
        self._settings = settings
        self._refused: TokenRejected | None = None
        self.claimed = ""  # the name in a token that is not accepted proves nothing

    async def step(self, message: bytes) -> LoginStep:
        """Check the token."""
        if self._refused is not None:
            raise SaslAuthenticationFailed(INVALID_TOKEN)
        token = parse_bearer(message)
        try:
            found = await self._authenticator.check_token(token, self._settings)
        except TokenRejected as error:
            self._authenticator.log_rejection(str(error))
            self._refused = error
            return LoginStep(FAILURE)
        acting = authorization_id(message)
        if acting and acting != found.principal.name:
            raise SaslAuthenticationFailed("a user cannot log in as another user; leave out the authorization id")
        return LoginStep(b"", found.principal, found.expires_ms)
