"""The Kafka listeners of a broker: the bound address, the address for clients and the security protocol of each.

`listeners`, `advertised.listeners` and `listener.security.protocol.map` are read as Apache Kafka reads them. Without
`listeners`, the address of `--kafka` is one listener called PLAINTEXT.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tidemill.model.addresses import WILDCARD_HOSTS, Address, parse_address
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import InvalidConfig
from tidemill.model.security_settings import AUTO, SECURITY_PROTOCOLS, SecuritySettings

PLAINTEXT = "PLAINTEXT"
GRPC, HTTP = "grpc", "http"
"""The servers next to the Kafka listeners."""
LISTENERS_MAX = 32
_NAME = re.compile(r"[A-Z0-9_.-]{1,64}")
_ALL_INTERFACES = "0.0.0.0"  # noqa: S104 -- the operator has asked for it


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """One Kafka listener."""

    name: str
    bind: Address
    advertised: Address | None = None
    """The address for clients; None means the address that the listener is bound to."""
    protocol: str = PLAINTEXT

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def requires_login(self) -> bool:
        """Whether clients must log in by SASL."""
        return self.protocol.startswith("SASL_")

    def __str__(self) -> str:
        return f"{self.name}://{self.bind}"


def parse_listeners(
    security: SecuritySettings, kafka: Address | None, advertise: Address | None
) -> tuple[ListenerSpec, ...]:
    """Every Kafka listener; InvalidConfig names the setting that is wrong."""
    if not security.listeners:
        if security.advertised_listeners:
            raise InvalidConfig("advertised.listeners is set without listeners; set listeners too, or use --advertise")
        return () if kafka is None else (ListenerSpec(PLAINTEXT, kafka, advertise),)
    if advertise is not None:
        raise InvalidConfig("--advertise is for one plain listener; with listeners, set advertised.listeners")
    binds = _addresses("listeners", security.listeners)
    shown = _addresses("advertised.listeners", security.advertised_listeners)
    for name in shown:
        if name not in binds:
            raise InvalidConfig(f"advertised.listeners names {name}, which listeners does not have")
    protocols = _protocols(security.listener_security_protocol_map)
    return tuple(ListenerSpec(name, bind, shown.get(name), _protocol(name, protocols)) for name, bind in binds.items())


def inter_broker_listener(security: SecuritySettings, listeners: Iterable[ListenerSpec]) -> ListenerSpec | None:
    """The listener that other brokers connect to: the named one, or else the first; None without listeners."""
    named = security.inter_broker_listener_name.upper()
    every = tuple(listeners)
    if not named:
        return every[0] if every else None
    for each in every:
        if each.name == named:
            return each
    raise InvalidConfig(f"inter.broker.listener.name={named} is none of the listeners {', '.join(map(str, every))}")


def authenticates(protocol: str, settings: SecuritySettings) -> bool:
    """Whether clients of a server with this protocol must prove who they are: by a login or by a certificate."""
    return protocol.startswith("SASL_") or (protocol == "SSL" and settings.ssl_client_auth == "required")


def has_authentication(settings: BrokerSettings, listeners: Iterable[ListenerSpec]) -> bool:
    """Whether a Kafka listener authenticates its clients."""
    return any(authenticates(each.protocol, settings.of_listener(each.name)) for each in listeners)


class ServerSecurity(NamedTuple):
    """The security of the gRPC or HTTP server."""

    protocol: str
    settings: SecuritySettings

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def authenticates(self) -> bool:
        """Whether clients must prove who they are."""
        return authenticates(self.protocol, self.settings)


def server_security(server: str, settings: BrokerSettings, listeners: Iterable[ListenerSpec]) -> ServerSecurity:
    """The security of the server `grpc` or `http`, whose own settings are `listener.name.{server}.*`.

    The protocol `auto` requires logins as soon as a Kafka listener does.
    """
    own = settings.of_listener(server)
    asked = {GRPC: own.tidemill_grpc_security, HTTP: own.tidemill_http_security}[server]
    if asked != AUTO:
        return ServerSecurity(asked, own)
    if not has_authentication(settings, listeners):
        return ServerSecurity(PLAINTEXT, own)
    has_certificate = own.ssl_keystore_location or own.ssl_certificate_location
    return ServerSecurity("SASL_SSL" if has_certificate else "SASL_PLAINTEXT", own)


def is_authorizer_on(settings: BrokerSettings, listeners: Iterable[ListenerSpec]) -> bool:
    """Whether ACLs are checked."""
    asked = settings.security.authorizer
    return asked == "acl" or (asked == AUTO and has_authentication(settings, listeners))


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address; a name is local only if it is localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") in {"localhost", "localhost.localdomain"} or host.lower().endswith(".localhost")


def is_wildcard(host: str) -> bool:
    """Whether the host means all interfaces."""
    return host in WILDCARD_HOSTS


def _addresses(setting: str, items: tuple[str, ...]) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for item in items:
        name, scheme, place = item.partition("://")
        name = name.strip().upper()
        if not scheme or not _NAME.fullmatch(name):
            raise InvalidConfig(f"{setting}: {item[:80]!r} is not NAME://host:port; write PLAINTEXT://127.0.0.1:9092")
        if name in found:
            raise InvalidConfig(f"{setting} names {name} twice; name each listener once")
        place = f"{_ALL_INTERFACES}{place}" if place.startswith(":") and setting == "listeners" else place
        found[name] = parse_address(place)
    if len(found) > LISTENERS_MAX:
        raise InvalidConfig(f"{setting} has {len(found)} entries; at most {LISTENERS_MAX} are possible")
    if setting == "listeners":
        _check_ports(found)
    return found


def _check_ports(found: dict[str, Address]) -> None:
    counts = Counter(address for address in found.values() if address.port)
    for address, count in counts.items():
        if count > 1:
            raise InvalidConfig(f"listeners has {address} twice; give each listener a port of its own")


def _protocols(items: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        name, colon, protocol = (part.strip().upper() for part in item.partition(":"))
        if not colon or protocol not in SECURITY_PROTOCOLS:
            raise InvalidConfig(
                f"listener.security.protocol.map: {item[:80]!r} is not NAME:PROTOCOL; "
                f"the protocols are {', '.join(SECURITY_PROTOCOLS)}"
            )
        found[name] = protocol
    return found


def _protocol(name: str, protocols: dict[str, str]) -> str:
    found = protocols.get(name) or (name if name in SECURITY_PROTOCOLS else None)
    if found is None:
        raise InvalidConfig(
            f"listener {name} has no security protocol; add {name}:PLAINTEXT, {name}:SSL, {name}:SASL_PLAINTEXT or "
            f"{name}:SASL_SSL to listener.security.protocol.map"
        )
    return found
