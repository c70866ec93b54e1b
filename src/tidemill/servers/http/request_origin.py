"""Checks the origin of a request: the name by which the server is called, and the page that calls it.

A web page of another site can reach a server on this machine or in its network in two ways. It can point its own name
to the address of this server (DNS rebinding): then the Host header has the page's name. Or it can send requests across
origins: then Origin or Sec-Fetch-Site shows it. A numeric address cannot be rebound, and neither can a name that only
the operator controls. So only the bound addresses and the configured names are allowed.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

LOCAL_NAME = "localhost"
ANY_NAME = "*"
PROBES = frozenset({"/health/live", "/health/ready"})
"""Answered under any name: probes send any Host header, and the answer of one word reveals nothing."""
NAME_SHOWN_CHARS = 100
SAFE_METHODS = frozenset({"GET", "HEAD"})
_BAD_NAME = frozenset("/\\@?#%, \t")

Headers = Sequence[tuple[bytes, bytes]]


class Refusal(NamedTuple):
    """Why a request is rejected."""

    status: int
    reason: str


class AllowedOrigins:
    """The names and addresses by which a server may be called."""

    def __init__(
        self,
        bound: str,
        name: str,
        names: Iterable[str] = (),
        own_names: Iterable[str] = (),
        *,
        is_secure: bool = False,
    ) -> None:
        """Build the lists: `bound` is the address, `name` its form in the settings, `names` are configured in addition.

        `own_names` are those of this machine. They are allowed when all its addresses are bound. With `is_secure`,
        pages that were loaded without TLS are foreign: anyone on the way may have written them. Without, a proxy may
        have served them over TLS.
        """
        self._page_schemes = {"https"} if is_secure else {"http", "https"}
        address = _address(bound)
        self._any_address = address is not None and address.is_unspecified
        self._loopback = self._any_address or (address is not None and address.is_loopback)
        known = {bound, name} | (set(own_names) if self._any_address else set())
        if self._loopback:
            known.add(LOCAL_NAME)
        configured = frozenset(map(_plain, names))
        self._pages = configured - {ANY_NAME}  # pages of other sites are never allowed by a wildcard
        self._names = configured | frozenset(map(_plain, known))

    def refuse(self, method: str, path: str, headers: Headers) -> Refusal | None:
        """Return why the request is rejected; None when it is allowed."""
        if path in PROBES:
            return None
        found = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(found) != 1 or _host_of(found[0]) is None:
            return Refusal(400, "send one Host header with the address of this server")
        if not self._is_ours(found[0]):
            shown = _host_of(found[0])
            return Refusal(
                403,
                f"{(shown or '')[:NAME_SHOWN_CHARS]!r} is not an allowed name of this server; "
                "to allow it, start the broker with --http-hosts NAME",
            )
        return self._refuse_page(method, found[0], dict(headers))

    def _refuse_page(self, method: str, host: str, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """Reject requests that the browser marks as coming from a page of another site."""
        origin = headers.get(b"origin")
        if origin is not None and not self._is_own_page(origin.decode("latin-1"), host):
            return Refusal(403, "pages of other sites may not use this server")
        site, mode = headers.get(b"sec-fetch-site"), headers.get(b"sec-fetch-mode")
        is_link = method in SAFE_METHODS and mode == b"navigate"
        if site in {b"cross-site", b"same-site"} and origin is None and not is_link:
            return Refusal(403, "pages of other sites may not use this server")
        return None

    def _is_own_page(self, origin: str, host: str) -> bool:
        scheme, separator, place = origin.partition("://")
        if not separator or scheme not in self._page_schemes:
            return False
        name = _host_of(place)
        return place.lower() == host.lower() or (name is not None and _matches(name, self._pages))

    def _is_ours(self, host: str) -> bool:
        name = _host_of(host)
        if name is None:
            return False
        address = _address(name)
        if address is None:
            return _matches(name, self._names)
        return self._any_address or name in self._names or (self._loopback and address.is_loopback)


def is_numeric_or_local(host: str) -> bool:
    """Whether a Host header has an address, or a name of this machine only."""
    name = _host_of(host)
    return name is None or name == LOCAL_NAME or name.endswith(f".{LOCAL_NAME}") or _address(name) is not None


def _matches(name: str, allowed: frozenset[str]) -> bool:
    """Whether a name is allowed: `.example.com` allows all names that end so, `*` all names."""
    if name in allowed or ANY_NAME in allowed:
        return True
    return any(each.startswith(".") and name.endswith(each) for each in allowed)


def _host_of(text: str) -> str | None:
    """Return the name or address of a Host header, without its port; None when it is neither."""
    if text.startswith("["):
        inside, bracket, port = text[1:].partition("]")
        if not bracket or not isinstance(_address(inside), IPv6Address) or not _is_port(port):
            return None
        return _plain(inside)
    name, colon, digits = text.partition(":")
    if not name or not _is_port(colon + digits) or _BAD_NAME & set(name) or not name.isprintable():
        return None
    return _plain(name)


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit())


def _plain(name: str) -> str:
    """Return a name in the form that is compared; an address in its one short form."""
    address = _address(name)
    return str(address) if address is not None else name.strip().lower().removesuffix(".")


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.strip("[]"))
    except ValueError:
        return None
