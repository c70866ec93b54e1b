"""Tokens against cross-site request forgery: a page of this server has one, and a page of another site cannot read it.

A token is made from what the browser holds in an HttpOnly cookie: the id of the session, or before the login the id of
a login attempt. So nothing is kept for visitors who have not logged in.
"""

import hmac
import re
from typing import NamedTuple

ATTEMPT_S = 3_600
"""How long a login page can be used."""
_ATTEMPT = re.compile(r"(\d{1,12})\.([A-Za-z0-9_-]{43})")


class LoginAttempt(NamedTuple):
    """A login page that a browser has open."""

    begun_s: int
    random: str
    """43 characters, which are 256 random bits."""

    def __str__(self) -> str:
        return f"{self.begun_s}.{self.random}"


def parse_attempt(text: str | None, now_s: float) -> LoginAttempt | None:
    """The login attempt in a cookie; None if it is malformed or too old."""
    found = _ATTEMPT.fullmatch(text or "")
    if found is None or not found[1].isascii():
        return None
    attempt = LoginAttempt(int(found[1]), found[2])
    return attempt if 0 <= now_s - attempt.begun_s < ATTEMPT_S else None


def form_token(key: bytes, purpose: str, held: str) -> str:
    """The token of forms with this purpose, in the browser that holds this cookie."""
    return hmac.digest(key, f"{purpose}\n{held}".encode("utf-8", "surrogatepass"), "sha256").hex()


def is_form_token(key: bytes, purpose: str, held: str, given: str | None) -> bool:
    """Whether a request has the right token."""
    expected = form_token(key, purpose, held).encode()
    return hmac.compare_digest(expected, (given or "").encode("utf-8", "surrogatepass"))
