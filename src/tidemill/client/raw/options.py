"""What a user can set, in Kafka's spelling (without the prefix `kafka.` that Spark puts before it).

Names of Java's client and of librdkafka are both known, because users bring either. What this client cannot do is
refused by name: Java's key stores (use PEM files), Kerberos and OAuth. Other names are left alone: the same
options are often given to several clients.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.client.raw.errors import InvalidOption
from tidemill.client.raw.topology import Address

PORT_MAX = 65535
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
REFUSED = {
    "ssl.keystore.location": "give PEM files: ssl.certificate.location and ssl.key.location",
    "sasl.kerberos.service.name": "Kerberos is not supported; use PLAIN or SCRAM",
    "sasl.oauthbearer.token.endpoint.url": "OAUTHBEARER is not supported; use PLAIN or SCRAM",
}
_JAAS = re.compile(r"""(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s;]+)""")


@dataclass(frozen=True, slots=True)
class Tls:
    """How a connection is encrypted; None stands for the system's own authorities, or for no certificate of ours."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    check_name: bool = True
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.username})"


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options of one client."""

    bootstrap: tuple[Address, ...]
    client_id: str = "tidemill"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    tls: Tls | None = None
    credentials: Credentials | None = None


def parse_options(options: Mapping[str, str]) -> ClientOptions:
    """The options a user gave; InvalidOption names the one that is wrong."""
    for name, advice in REFUSED.items():
        if name in options:
            raise InvalidOption(f"{name}: {advice}")
    if "bootstrap.servers" not in options:
        raise InvalidOption("bootstrap.servers is missing: give host:port[,host:port]")
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise InvalidOption(f"security.protocol: {protocol} is none of {', '.join(PROTOCOLS)}")
    return ClientOptions(
        bootstrap=parse_addresses(options["bootstrap.servers"]),
        client_id=options.get("client.id", "tidemill"),
        connect_timeout_ms=_milliseconds(options, "socket.connection.setup.timeout.ms", 10_000),
        request_timeout_ms=_milliseconds(options, "request.timeout.ms", 30_000),
        api_timeout_ms=_milliseconds(options, "default.api.timeout.ms", 60_000),
        retry_backoff_ms=_milliseconds(options, "retry.backoff.ms", 100),
        retry_backoff_max_ms=_milliseconds(options, "retry.backoff.max.ms", 1_000),
        tls=_tls(options) if protocol.endswith("SSL") else None,
        credentials=_credentials(options) if protocol.startswith("SASL") else None,
    )


def parse_addresses(text: str) -> tuple[Address, ...]:
    """`host:port[,host:port]`, with an IPv6 host in brackets."""
    addresses = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, colon, port = part.rpartition(":")
        host = host.split("//")[-1].strip("[]")  # Java's PLAINTEXT://host:port
        if not colon or not host or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
            raise InvalidOption(f"bootstrap.servers: {part!r} is not host:port")
        addresses.append(Address(host, int(port)))
    if not addresses:
        raise InvalidOption("bootstrap.servers is empty: give host:port[,host:port]")
    return tuple(addresses)


def _milliseconds(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) == 0:
        raise InvalidOption(f"{name}: {text!r} is not a number of milliseconds above 0")
    return int(text)


def _tls(options: Mapping[str, str]) -> Tls:
    for store in ("ssl.truststore.type", "ssl.keystore.type"):
        if options.get(store, "PEM").upper() != "PEM":
            raise InvalidOption(f"{store}: only PEM is supported")
    if "ssl.truststore.location" in options and options.get("ssl.truststore.type", "").upper() != "PEM":
        raise InvalidOption(
            "ssl.truststore.location: Java's stores are not supported; give ssl.ca.location, a PEM file"
        )
    return Tls(
        ca_file=options.get("ssl.ca.location", options.get("ssl.truststore.location")),
        certificate_file=options.get("ssl.certificate.location"),
        key_file=options.get("ssl.key.location"),
        key_password=options.get("ssl.key.password"),
        check_name=options.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
        verify=options.get("enable.ssl.certificate.verification", "true").lower() == "true",
    )


def _credentials(options: Mapping[str, str]) -> Credentials:
    mechanism = options.get("sasl.mechanism", options.get("sasl.mechanisms", "")).upper()
    if mechanism not in MECHANISMS:
        raise InvalidOption(f"sasl.mechanism: {mechanism or 'nothing'} is none of {', '.join(MECHANISMS)}")
    found = {name: value.strip("\"'") for name, value in _JAAS.findall(options.get("sasl.jaas.config", ""))}
    username = options.get("sasl.username", found.get("username"))
    password = options.get("sasl.password", found.get("password"))
    if username is None or password is None:
        raise InvalidOption("sasl.username and sasl.password (or both in sasl.jaas.config) are missing")
    return Credentials(mechanism, username, password)
