"""How a gRPC client logs in: with a user and password, or with a token that is fetched again before it expires."""

import asyncio
import base64
import binascii
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tidemill.client.kafka.errors import AuthenticationFailed

OPAQUE_TOKEN_S = 60.0
"""How long a token is used whose end is not known."""
EARLY_S = 10.0
"""A token is fetched again this long before its end."""
TOKEN_CHARS_MAX = 16 * 1024

FetchToken = Callable[[], str]


class ClientLogin(Protocol):
    """The value of the metadata `authorization`."""

    @property
    def newest(self) -> str:
        """The value that was used last; empty before the first one."""

    async def value(self) -> str:
        """The value for a call."""

    def renew(self, refused: str) -> bool:
        """Whether another value may be accepted after the broker has refused this one."""


class PasswordLogin:
    """A user and a password."""

    def __init__(self, name: str, password: str) -> None:
        self._name = name
        self.newest = f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"

    def __repr__(self) -> str:
        return f"PasswordLogin({self._name})"

    async def value(self) -> str:
        """The value for a call."""
        return self.newest

    def renew(self, refused: str) -> bool:
        """A password stays the same."""
        del refused
        return False


class TokenLogin:
    """A bearer token. `fetch` is called in a thread, because it may read a file or ask a server."""

    def __init__(self, fetch: FetchToken) -> None:
        self._fetch = fetch
        self.newest = ""
        self._until_s = 0.0
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return "TokenLogin()"

    async def value(self) -> str:
        """The value for a call; AuthenticationFailed when no token can be fetched."""
        if time.monotonic() >= self._until_s:
            async with self._turn:
                if time.monotonic() >= self._until_s:
                    await self._renew()
        return self.newest

    def renew(self, refused: str) -> bool:
        """Fetch another token for the next call; False if the refused one was just fetched."""
        if refused == self.newest:
            self._until_s = 0.0
        return True

    async def _renew(self) -> None:
        try:
            token = (await asyncio.to_thread(self._fetch)).strip()
        except Exception as error:
            raise AuthenticationFailed(f"no token could be fetched: {type(error).__name__}: {error}") from error
        if not token or len(token) > TOKEN_CHARS_MAX or not token.isascii() or not token.isprintable():
            raise AuthenticationFailed(
                f"the fetched token is not valid: it must have 1 to {TOKEN_CHARS_MAX} printable characters"
            )
        self.newest = f"Bearer {token}"
        self._until_s = time.monotonic() + lifetime_s(token, time.time())


def token_from(file: str) -> FetchToken:
    """A function that reads the token from a file, which another program renews."""
    return lambda: Path(file).read_text(encoding="utf-8")


def lifetime_s(token: str, now_s: float) -> float:
    """How long to use a token: until shortly before the end that a JWT states."""
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        ends_s = float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])
    except (binascii.Error, ValueError, TypeError, KeyError):
        return OPAQUE_TOKEN_S
    left_s = ends_s - now_s
    return max(left_s - EARLY_S, left_s / 2, 0.0)
