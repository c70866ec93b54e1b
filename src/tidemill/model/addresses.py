"""Network addresses in settings."""

from typing import NamedTuple

from tidemill.model.errors import InvalidConfig

PORT_MAX = 65535
WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})  # noqa: S104 -- compared with, not listened on


class Address(NamedTuple):
    """The address that a server listens on or that clients connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse `host:port` or `[IPv6]:port`. Port 0 picks a free port."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidConfig(f"{text!r} is not host:port; write an IPv6 address as [::1]:9092")
    if not colon or not host or not (port.isascii() and port.isdigit()):
        raise InvalidConfig(f"{text!r} is not host:port; write for example 127.0.0.1:9092")
    if int(port) > PORT_MAX:
        raise InvalidConfig(f"port {port} in {text!r} is not between 0 and {PORT_MAX}")
    return Address(host, int(port))
