"""Parses client options in Kafka's spelling, without the prefix `kafka.` that Spark adds.

Names of the Java client and of librdkafka are both accepted, because users bring either. Unsupported options are
rejected by name, with an alternative: Java key stores (use PEM), Kerberos, OAuth, cloud tokens. Unknown names are
ignored, because the same options are often given to several clients.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.client.kafka.topology import BrokerEndpoint

PORT_MAX = 65535
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ADVICE = "use PLAIN or SCRAM"
REFUSED = {
    "sasl.kerberos.service.name": f"Kerberos is not supported; {ADVICE}",
    "sasl.oauthbearer.token.endpoint.url": f"OAUTHBEARER is not supported; {ADVICE}",
    "sasl.login.callback.handler.class": f"Java classes are not supported; {ADVICE}",
    "sasl.client.callback.handler.class": f"Java classes are not supported; {ADVICE}",
}
LOGIN_NAMES = frozenset(
    {
        "client.id",
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.certificates",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)
"""The options for security and identity, which can be passed on to another client."""
SECRET_NAMES = frozenset({"sasl.password", "sasl.jaas.config", "ssl.key.password", "ssl.key.pem", "ssl.keystore.key"})
"""The options that hold a secret."""
PATIENCE_NAMES = frozenset(
    {
        "socket.connection.setup.timeout.ms",
        "request.timeout.ms",
        "default.api.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
    }
)
"""The options for timeouts and retries."""
FOREIGN = {
    "GSSAPI": "Kerberos is not supported",
    "OAUTHBEARER": "OAuth is not supported",
    "AWS_MSK_IAM": "AWS tokens are not supported; create a SCRAM-SHA-512 user in the cluster",
}
"""Mechanisms that other clients support, with the reason for the rejection."""
LOGIN_MODULES = ("PlainLoginModule", "ScramLoginModule")
JAAS_FORM = '...ScramLoginModule required username="ann" password="...";'
PEM = "PEM"
JAVA_STORES = (".jks", ".p12", ".pfx", ".keystore", ".truststore")
"""Extensions of files that are not PEM."""
_JAAS_PART = re.compile(r"""(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")
_JAAS_MODULE = re.compile(r"\s*([\w.$]+)")


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The TLS options of a connection. None means the system's CAs, or no client certificate.

    Each part is the name of a PEM file, or (`_pem`) its text. A certificate without a key has it in the same file.
    """

    ca_file: str | None = None
    ca_pem: str | None = None
    certificate_file: str | None = None
    certificate_pem: str | None = None
    key_file: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    check_name: bool = True
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Credentials:
    """The SASL credentials of the client."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.username})"


@dataclass(frozen=True, slots=True)
class PeerLogin:
    """The login of a broker to another broker of its cluster."""

    node_id: int
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ActingLogin:
    """The login of a broker for a client of its HTTP server: a new token for each broker, by node id."""

    token: Callable[[int], str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options of one client."""

    bootstrap: tuple[BrokerEndpoint, ...]
    client_id: str = "tidemill"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    tls: TlsOptions | None = None
    credentials: Credentials | None = None
    context: Any = None
    """The `ssl.SSLContext` of connections between brokers; `tls` has the options of other clients."""
    peer: PeerLogin | None = None
    acting: ActingLogin | None = None


def parse_options(options: Mapping[str, str]) -> ClientOptions:
    """Parse the options of a user. InvalidClientOption names the one that is wrong."""
    for name, advice in REFUSED.items():
        if name in options:
            raise InvalidClientOption(f"{name}: {advice}")
    if "bootstrap.servers" not in options:
        raise InvalidClientOption("bootstrap.servers is missing; set it to host:port[,host:port]")
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise InvalidClientOption(f"security.protocol: {protocol} is not one of {', '.join(PROTOCOLS)}")
    return ClientOptions(
        bootstrap=parse_addresses(options["bootstrap.servers"]),
        client_id=options.get("client.id", "tidemill"),
        connect_timeout_ms=_milliseconds(options, "socket.connection.setup.timeout.ms", 10_000),
        request_timeout_ms=_milliseconds(options, "request.timeout.ms", 30_000),
        api_timeout_ms=_milliseconds(options, "default.api.timeout.ms", 60_000),
        retry_backoff_ms=_milliseconds(options, "retry.backoff.ms", 100),
        retry_backoff_max_ms=_milliseconds(options, "retry.backoff.max.ms", 1_000),
        tls=tls_options(options) if protocol.endswith("SSL") else None,
        credentials=_credentials(options) if protocol.startswith("SASL") else None,
    )


def parse_addresses(text: str, *, name: str = "bootstrap.servers") -> tuple[BrokerEndpoint, ...]:
    """Parse `host:port[,host:port]`, with an IPv6 host in brackets. An error starts with the name of the option."""
    addresses = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, colon, port = part.rpartition(":")
        host = host.split("//")[-1].strip("[]")  # Java's PLAINTEXT://host:port
        if not colon or not host or not port.isdecimal() or not 0 < int(port) <= PORT_MAX:
            raise InvalidClientOption(f"{name}: {part!r} is not host:port; write for example 127.0.0.1:9092")
        addresses.append(BrokerEndpoint(host, int(port)))
    if not addresses:
        raise InvalidClientOption(f"{name} is empty; set it to host:port[,host:port]")
    return tuple(addresses)


def _milliseconds(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) == 0:
        raise InvalidClientOption(f"{name}: {text!r} is not a number of milliseconds above 0")
    return int(text)


def tls_options(options: Mapping[str, str]) -> TlsOptions:
    """The TLS options among the options of a user."""
    trusted, own = (
        _pem_store(options, "truststore", "ssl.ca.location"),
        _pem_store(options, "keystore", "ssl.key.location"),
    )
    return TlsOptions(
        ca_file=options.get("ssl.ca.location", trusted),
        ca_pem=options.get("ssl.ca.pem", options.get("ssl.truststore.certificates")),
        certificate_file=options.get("ssl.certificate.location", own),
        certificate_pem=options.get("ssl.certificate.pem", options.get("ssl.keystore.certificate.chain")),
        key_file=options.get("ssl.key.location"),
        key_pem=options.get("ssl.key.pem", options.get("ssl.keystore.key")),
        key_password=options.get("ssl.key.password"),
        check_name=options.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
        verify=options.get("enable.ssl.certificate.verification", "true").lower() == "true",
    )


def _pem_store(options: Mapping[str, str], store: str, instead: str) -> str | None:
    """The file of a Java store, if its type is PEM."""
    location, kind = options.get(f"ssl.{store}.location"), options.get(f"ssl.{store}.type")
    java = PEM not in kind.upper() if kind else (location or "").lower().endswith(JAVA_STORES)
    if not java:
        return location
    what = f"ssl.{store}.type: {kind}" if kind else f"ssl.{store}.location: {location}"
    raise InvalidClientOption(f"{what} is a Java store, and only PEM is supported; set {instead}, {_conversion(store)}")


def _conversion(store: str) -> str:
    """The command that converts a Java store to PEM."""
    if store == "truststore":
        return "created with: keytool -list -rfc -keystore STORE > ca.pem"
    return (
        "and ssl.certificate.location, created with: openssl pkcs12 -in STORE.p12 -out me.pem "
        "(keytool converts .jks to .p12)"
    )


def _credentials(options: Mapping[str, str]) -> Credentials:
    given = options.get("sasl.mechanism", options.get("sasl.mechanisms", "")).upper()
    if not given:
        raise InvalidClientOption(f"sasl.mechanism is missing; set it to one of {', '.join(MECHANISMS)}")
    if given not in MECHANISMS:
        why = f"; {FOREIGN[given]}" if given in FOREIGN else ""
        raise InvalidClientOption(f"sasl.mechanism: {given} is not one of {', '.join(MECHANISMS)}{why}")
    return Credentials(given, *login_names(options))


def login_names(options: Mapping[str, str]) -> tuple[str, str]:
    """The user name and the password."""
    found = _jaas(options.get("sasl.jaas.config"))
    username = options.get("sasl.username", found.get("username"))
    password = options.get("sasl.password", found.get("password"))
    if username is None or password is None:
        raise InvalidClientOption(
            f"the SASL login is missing; set sasl.username and sasl.password, or sasl.jaas.config: {JAAS_FORM}"
        )
    return username, password


def _jaas(config: str | None) -> dict[str, str]:
    """The options of a login module in Java's syntax."""
    if config is None:
        return {}
    module = _JAAS_MODULE.match(config)
    name = module[1].rpartition(".")[2] if module else ""
    if name not in LOGIN_MODULES:
        raise InvalidClientOption(
            f"sasl.jaas.config: {name or 'nothing'} is not one of {', '.join(LOGIN_MODULES)}; write {JAAS_FORM}"
        )
    return {key: _unquoted(value) for key, value in _JAAS_PART.findall(config)}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text
