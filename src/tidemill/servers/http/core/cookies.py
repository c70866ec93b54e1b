"""The cookies of the HTTP server: they cannot be read by scripts, sent by pages of other sites, or set by other hosts.

Browsers share the cookies of a host between all its ports, so a name has the port: brokers on one machine would log
each other's users out.
"""

from collections.abc import Iterable

_HOST_PREFIX = "__Host-"
"""Browsers accept such a cookie only with Secure and Path=/, without Domain, so that no other host can set it."""


def cookie_name(what: str, port: int, *, is_secure: bool) -> str:
    """The name of a cookie of the server at this port."""
    return f"{_HOST_PREFIX if is_secure else ''}tidemill-{what}-{port}"


def cookie_header(name: str, value: str, *, max_age_s: int, is_secure: bool) -> str:
    """The value of `set-cookie`; `max_age_s=0` deletes the cookie."""
    secure = "; Secure" if is_secure else ""
    return f"{name}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}"


def cookie_value(headers: Iterable[tuple[bytes, bytes]], name: str) -> str | None:
    """The value of a cookie. None if there is none, or more than one: another host may have set the second."""
    found = [
        value.strip()
        for key, line in headers
        if key == b"cookie"
        for pair in line.decode("latin-1").split(";")
        for word, equals, value in [pair.partition("=")]
        if equals and word.strip() == name
    ]
    return found[0] if len(found) == 1 else None
