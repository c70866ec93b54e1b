"""The public keys of a token issuer (a JWKS document), read from a file or an address and read again when they change.

A client chooses the key id of its token, so an unknown id makes the broker read the keys again, but not more than once
in RETRY_S. Keys that were read before stay in use when the address does not answer.
"""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import jwt
import structlog

from tidemill.security.core.oauth import ALGORITHMS, TokenRejected, check_keys_url, parse_head, shown_url

DOCUMENT_BYTES_MAX = 1024 * 1024
KEYS_MAX = 200
FETCH_TIMEOUT_S = 10.0
RETRY_S = 10.0
"""The least time between two reads because of an unknown key id or a failure."""

log = structlog.get_logger("tidemill.security")


class TokenKeys:
    """The keys of one issuer. `steady_s` is a clock that cannot be set."""

    def __init__(
        self,
        url: str,
        refresh_s: float,
        steady_s: Callable[[], float],
        read: Callable[[str], bytes] | None = None,
    ) -> None:
        check_keys_url(url)
        self._url = url
        self._refresh_s = refresh_s
        self._steady_s = steady_s
        self._read = read or read_keys
        self._keys: list[jwt.PyJWK] = []
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()

    async def claims(self, token: str) -> Mapping[str, Any]:
        """The claims of a token whose signature is valid; TokenRejected otherwise."""
        head = parse_head(token)
        if self._read_at is None or self._steady_s() - self._read_at >= self._refresh_s:
            await self._refresh()
        candidates = self._candidates(head.key_id)
        if not candidates:
            await self._refresh()
            candidates = self._candidates(head.key_id)
        if not candidates:
            raise TokenRejected("no key of the issuer has the token's key id")
        for key in candidates:
            payload = _verified(token, key, head.algorithm)
            if payload is not None:
                return _claims(payload)
        raise TokenRejected("the signature of the token is wrong")

    def _candidates(self, key_id: str | None) -> list[jwt.PyJWK]:
        return [key for key in self._keys if key_id is None or key.key_id == key_id]

    async def _refresh(self) -> None:
        async with self._lock:
            now = self._steady_s()
            if self._tried_at is not None and now - self._tried_at < RETRY_S:
                return
            self._tried_at = now
            try:
                self._keys = parse_keys(await asyncio.to_thread(self._read, self._url))
                self._read_at = now
            except (OSError, ValueError) as error:
                log.warning("token_keys_not_read", url=shown_url(self._url), error=str(error), kept=len(self._keys))


def parse_keys(document: bytes) -> list[jwt.PyJWK]:
    """The signature keys of a JWKS document; keys of other kinds and uses are left out."""
    read = json.loads(document)
    listed = read.get("keys") if isinstance(read, dict) else None
    if not isinstance(listed, list):
        raise ValueError("the document is not a JWKS: it has no list of keys")  # noqa: TRY004 -- one error for callers
    if len(listed) > KEYS_MAX:
        raise ValueError(f"the document has {len(listed)} keys; {KEYS_MAX} is the limit")
    found = [_key(each) for each in listed if isinstance(each, dict)]
    return [key for key in found if key is not None]


def read_keys(url: str) -> bytes:
    """The document at a file or web address, without following redirects."""
    if urlsplit(url).scheme == "file":
        with Path(urllib.request.url2pathname(urlsplit(url).path)).open("rb") as file:
            return _bounded(file)
    try:
        with _OPENER.open(url, timeout=FETCH_TIMEOUT_S) as answer:
            return _bounded(answer)
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"the address answers with {error.code}") from None


def _bounded(source: "IO[bytes]") -> bytes:
    document = source.read(DOCUMENT_BYTES_MAX + 1)
    if len(document) > DOCUMENT_BYTES_MAX:
        raise ValueError(f"the document is larger than {DOCUMENT_BYTES_MAX} bytes")
    return document


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect could lead to an address without TLS."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


_OPENER = urllib.request.build_opener(_NoRedirects)


def _key(each: dict[str, Any]) -> jwt.PyJWK | None:
    if each.get("use", "sig") != "sig" or each.get("kty") == "oct":
        return None
    try:
        key = jwt.PyJWK.from_dict(each)
    except jwt.PyJWTError:
        return None
    return key if key.algorithm_name in ALGORITHMS else None


def _verified(token: str, key: jwt.PyJWK, algorithm: str) -> bytes | None:
    """The payload, if this key has signed the token."""
    try:
        # The key itself is passed, not the JWK, so that a key without `alg` serves every algorithm of its kind.
        payload: bytes = jwt.PyJWS().decode(token, key.key, algorithms=[algorithm])
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return payload


def _claims(payload: bytes) -> Mapping[str, Any]:
    try:
        read = json.loads(payload)
    except (ValueError, RecursionError):
        raise TokenRejected("the token is not a signed JWT") from None
    if not isinstance(read, dict):
        raise TokenRejected("the token is not a signed JWT")
    return read
