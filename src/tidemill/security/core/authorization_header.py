"""The value of the header `authorization`: a user with a password (RFC 7617) or a bearer token (RFC 6750)."""

import base64
import binascii
import re
from typing import NamedTuple

from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.security.core.oauth import TOKEN_BYTES_MAX
from tidemill.security.core.plain import PlainLogin, check_lengths

BASIC, BEARER = "BASIC", "BEARER"
VALUE_CHARS_MAX = TOKEN_BYTES_MAX + 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class BearerLogin(NamedTuple):
    """A token."""

    token: str

    def __repr__(self) -> str:
        return "BearerLogin()"  # a traceback or a log line must not have the token


class NoLogin(SaslAuthenticationFailed):
    """This server requires a login: send a user and password (Basic), or a token (Bearer), as authorization."""


def parse_authorization(value: str | None) -> PlainLogin | BearerLogin:
    """The login of a request; NoLogin when it has none."""
    if not value:
        raise NoLogin
    if len(value) > VALUE_CHARS_MAX:
        raise SaslAuthenticationFailed(f"authorization is longer than {VALUE_CHARS_MAX} characters")
    scheme, _, rest = value.strip().partition(" ")
    match scheme.upper():
        case "BASIC":
            return _basic(rest.strip())
        case "BEARER":
            return _bearer(rest.strip())
    raise SaslAuthenticationFailed("authorization has a scheme that is not supported; use Basic or Bearer")


def _basic(text: str) -> PlainLogin:
    try:
        name, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise SaslAuthenticationFailed("authorization is not base64 of user:password in UTF-8") from None
    if not colon or not name or not password:
        raise SaslAuthenticationFailed("authorization has no user or no password; send base64 of user:password")
    check_lengths(name, password)
    return PlainLogin(name, password)


def _bearer(token: str) -> BearerLogin:
    if not _TOKEN.fullmatch(token):
        raise SaslAuthenticationFailed("authorization has no bearer token")
    return BearerLogin(token)
