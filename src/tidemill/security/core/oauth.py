"""OAUTHBEARER (RFC 7628) and the claims of a token, without IO.

A token is accepted only when its signature was verified with a key of the issuer, and its claims name the expected
issuer and audience and are valid now. The algorithms are a fixed list of public-key signatures: `none` and the HMAC
algorithms are never accepted, because a client could make such a token with the public key.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tidemill.model.errors import InvalidConfig, SaslAuthenticationFailed
from tidemill.model.listeners import is_local
from tidemill.security.core.principal import NAME_CHARS_MAX, Principal, is_name, user

ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
)
TOKEN_BYTES_MAX = 16 * 1024
MESSAGE_BYTES_MAX = 32 * 1024
SEPARATOR = "\x01"
ABORT = b"\x01"
"""The client's answer to a failure: the exchange ends with an error."""
FAILURE = b'{"status":"invalid_token"}'
"""The broker's answer to a token that it does not accept. It does not say why; the log does."""
INVALID_TOKEN = "the token is not valid"  # noqa: S105 -- a sentence, not a secret
SECONDS_MAX = 253_402_300_799
"""The end of the year 9999."""

_NAME = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_SIGNED = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*")
"""Three parts without padding. The library would skip other characters, so one signature would have many spellings."""


class TokenRejected(SaslAuthenticationFailed):
    """The token is not valid."""


class TokenHead(NamedTuple):
    """What the head of a token says about its signature. Nothing of it is trusted."""

    algorithm: str
    key_id: str | None


class TokenRules(NamedTuple):
    """What the claims of a token must be. An empty issuer or audience accepts any."""

    issuer: str = ""
    audiences: tuple[str, ...] = ()
    name_claim: str = "sub"
    skew_s: int = 30


class TokenUser(NamedTuple):
    """The user of a token, and the time until which the token is valid."""

    principal: Principal
    expires_ms: int


def parse_bearer(message: bytes) -> str:
    """The token in the client's first message: `n,[a=user],^Aauth=Bearer TOKEN^A[name=value^A]^A`."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise _invalid(f"it is larger than {MESSAGE_BYTES_MAX} bytes")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise _invalid("it is not UTF-8") from None
    head, separator, rest = text.partition(SEPARATOR)
    if not separator or not rest.endswith(SEPARATOR * 2):
        raise _invalid("its separators are missing")
    flag, _, authzid = head.partition(",")
    if flag not in {"n", "y"} or not authzid.endswith(",") or (authzid != "," and not authzid.startswith("a=")):
        raise _invalid("its header is not valid; channel binding is not supported")
    pairs = _pairs(rest[:-2])
    scheme, _, token = pairs.pop("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token.strip()):
        raise _invalid("it has no bearer token")
    return token.strip()


def authorization_id(message: bytes) -> str:
    """The user that the first message asks to act as; empty when it does not name one."""
    named = message.partition(SEPARATOR.encode())[0].decode(errors="replace").partition(",")[2].removesuffix(",")
    return named.removeprefix("a=").replace("=2C", ",").replace("=3D", "=")


def parse_head(token: str) -> TokenHead:
    """The algorithm and the key id of a signed token."""
    if len(token) > TOKEN_BYTES_MAX:
        raise TokenRejected(f"the token is larger than {TOKEN_BYTES_MAX} bytes")
    if not _SIGNED.fullmatch(token):
        raise TokenRejected("the token is not a signed JWT")
    head = _json(token.partition(".")[0])
    algorithm, key_id = head.get("alg"), head.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRejected(f"the token's algorithm {str(algorithm)[:20]!r} is not accepted")
    if "crit" in head:
        raise TokenRejected("the token has critical extensions, which are not supported")
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRejected("the token's key id is not text")
    return TokenHead(algorithm, key_id)


def check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> TokenUser:
    """The user of a token whose signature was verified. TokenRejected: the reason is for the log of the broker."""
    expires_s = _time(claims, "exp")
    now_s = now_ms / 1000
    if now_s >= expires_s + rules.skew_s:
        raise TokenRejected("the token has expired")
    for start in ("nbf", "iat"):
        if start in claims and now_s < _time(claims, start) - rules.skew_s:
            raise TokenRejected(f"the token is not valid yet ({start})")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise TokenRejected("the token has another issuer")
    if rules.audiences and not set(_texts(claims.get("aud"))) & set(rules.audiences):
        raise TokenRejected("the token is for another audience")
    name = claims.get(rules.name_claim)
    if not isinstance(name, str) or not is_name(name) or len(name) > NAME_CHARS_MAX:
        raise TokenRejected(f"the token has no user name in its claim {rules.name_claim}")
    return TokenUser(user(name), int(expires_s * 1000))


def check_keys_url(url: str) -> None:
    """Reject an address whose answer another machine could change on the way."""
    parts = urlsplit(url)
    is_file = parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")
    is_web = parts.scheme == "https" or (parts.scheme == "http" and is_local(parts.hostname or ""))
    if not is_file and not (is_web and parts.hostname):
        raise InvalidConfig(
            "sasl.oauthbearer.jwks.endpoint.url must be file:///path, https://host/path, or http:// on loopback; "
            f"it is {shown_url(url)!r}"
        )


def shown_url(url: str) -> str:
    """The address without a password and without a query, for messages."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _time(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= SECONDS_MAX:
        raise TokenRejected(f"the token's claim {name} is missing or not a time")
    return float(value)


def _texts(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [each for each in listed if isinstance(each, str)]


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in text.split(SEPARATOR):
        name, separator, value = part.partition("=")
        if not separator or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value) or name in pairs:
            raise _invalid("an extension is not name=value")
        pairs[name] = value
    return pairs


def _json(part: str) -> Mapping[str, Any]:
    try:
        read = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRejected("the token is not a signed JWT") from None
    if not isinstance(read, dict):
        raise TokenRejected("the token is not a signed JWT")
    return read


def _invalid(why: str) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(f"the OAUTHBEARER message is not valid: {why}")
