"""Logs clients in: SCRAM, PLAIN, and passwords of HTTP and gRPC.

A password is stretched in a thread, and few at a time, so that logins cannot stop the event loop. A password that was
right is remembered for a while as a keyed hash, because clients of HTTP and gRPC send it with every request.
"""

import asyncio
import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidemill.model.errors import RequestTimedOut, SaslAuthenticationFailed, UnsupportedSaslMechanism
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

PLAIN = "PLAIN"
STRETCH_THREADS = 2
STRETCH_WAITING_MAX = 256
"""Passwords that wait to be stretched; more logins are refused until it is less."""
REMEMBERED_MAX = 1_000
REMEMBERED_S = 60.0
NONCE_BYTES = 24
KEY_BYTES = 32

T = TypeVar("T")


class Authenticator:
    """The logins of one broker. `token_bytes` makes random bytes, `steady_s` is a clock that cannot be set."""

    def __init__(self, users: Users, *, token_bytes: Callable[[int], bytes], steady_s: Callable[[], float]) -> None:
        self._users = users
        self._token_bytes = token_bytes
        self._steady_s = steady_s
        self._decoy_key = token_bytes(KEY_BYTES)
        self._cache_key = token_bytes(KEY_BYTES)
        self._remembered: dict[bytes, tuple[float, int]] = {}
        self._threads = ThreadPoolExecutor(STRETCH_THREADS, "login")
        self._waiting = 0

    def begin(self, mechanism: str) -> LoginExchange:
        """The server's side of a login by this mechanism."""
        if mechanism == PLAIN:
            return _PlainExchange(self)
        found = BY_LABEL.get(mechanism)
        if found is None:
            raise UnsupportedSaslMechanism(f"{mechanism[:40]} is not a mechanism of this broker")
        return _ScramExchange(self, ScramServer(found, self._token_bytes(NONCE_BYTES).hex()), found)

    def credential(self, name: str, mechanism: ScramMechanism) -> tuple[ScramCredential, bool]:
        """The credential of a user, and True; for another user one that no password belongs to, and False."""
        found = self._users.find(name)
        known = None if found is None else found.credentials.get(mechanism)
        return (decoy(mechanism, name, self._decoy_key), False) if known is None else (known, True)

    async def check_password(self, name: str, password: str) -> Principal:
        """The principal of a user with this password; SaslAuthenticationFailed otherwise."""
        check_lengths(name, password)
        seen = hmac.digest(self._cache_key, f"{len(name)}:{name}{password}".encode("utf-8", "surrogatepass"), "sha256")
        if self._is_remembered(seen):
            return user(name)
        version = self._users.version
        credential, is_known = self._any_credential(name)
        salted = await self._stretch(
            lambda: salted_password(credential.mechanism, password, credential.salt, credential.iterations)
        )
        if not (has_password(credential, salted) and is_known):
            raise SaslAuthenticationFailed(WRONG_LOGIN)
        self._remember(seen, version)
        return user(name)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _any_credential(self, name: str) -> tuple[ScramCredential, bool]:
        for mechanism in (ScramMechanism.SHA_512, ScramMechanism.SHA_256):
            credential, is_known = self.credential(name, mechanism)
            if is_known:
                return credential, True
        return self.credential(name, ScramMechanism.SHA_512)

    async def _stretch(self, work: Callable[[], T]) -> T:
        if self._waiting >= STRETCH_WAITING_MAX:
            raise RequestTimedOut("too many logins at once; try again")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1

    def _is_remembered(self, seen: bytes) -> bool:
        until, version = self._remembered.get(seen, (0.0, -1))
        return self._steady_s() < until and version == self._users.version

    def _remember(self, seen: bytes, version: int) -> None:
        if len(self._remembered) >= REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[seen] = (self._steady_s() + REMEMBERED_S, version)


class _PlainExchange:
    """A login by PLAIN: one message."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def step(self, message: bytes) -> LoginStep:
        """Check the user and the password."""
        name, password = parse_plain(message)
        return LoginStep(b"", await self._authenticator.check_password(name, password))


class _ScramExchange:
    """A login by SCRAM: two messages. The broker computes little: the client stretches the password."""

    def __init__(self, authenticator: Authenticator, server: ScramServer, mechanism: ScramMechanism) -> None:
        self._authenticator = authenticator
        self._server = server
        self._mechanism = mechanism
        self._name: str | None = None

    async def step(self, message: bytes) -> LoginStep:
        """Send the challenge, then check the proof."""
        if self._name is None:
            name = self._server.first(message)
            credential, is_known = self._authenticator.credential(name, self._mechanism)
            self._name = name
            return LoginStep(self._server.challenge(credential, is_known=is_known))
        return LoginStep(self._server.finish(message), user(self._name))
