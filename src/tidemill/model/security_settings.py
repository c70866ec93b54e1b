"""The settings of listeners, TLS, logins, authorization and limits, with Kafka's names.

They belong to the table of broker settings. Every `ssl.*` and `sasl.*` setting can be given for one listener as
`listener.name.{name}.{setting}`. Values that are secrets are marked `sensitive`: no listing shows them.
"""

from dataclasses import dataclass, field

from tidemill.model.topic_settings import INT32_MAX, Setting, SettingKind

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
AUTO = "auto"
_PROTOCOL_MAP = ",".join(f"{each}:{each}" for each in SECURITY_PROTOCOLS)

SECURITY_SETTINGS = (
    Setting(
        "advertised.listeners",
        SettingKind.LIST,
        "",
        "Addresses that clients connect to, NAME://host:port for each listener. Default: the addresses of listeners.",
    ),
    Setting(
        "allow.anonymous",
        SettingKind.BOOLEAN,
        "false",
        "Accept clients without a login on addresses that other machines can reach.",
    ),
    Setting(
        "allow.everyone.if.no.acl.found",
        SettingKind.BOOLEAN,
        "false",
        "Allow every user to use a resource that no ACL names.",
    ),
    Setting(
        "authorizer",
        SettingKind.STRING,
        AUTO,
        "Check ACLs: auto (as soon as one listener authenticates), acl (always) or none (never).",
        choices=(AUTO, "acl", "none"),
    ),
    Setting(
        "connection.failed.authentication.delay.ms",
        SettingKind.INT,
        "100",
        "Time until a failed login is answered.",
        low=0,
        high=60_000,
    ),
    Setting(
        "connections.max.reauth.ms",
        SettingKind.LONG,
        "0",
        "Time after which a client must authenticate again; 0 means never.",
        low=0,
    ),
    Setting(
        "inter.broker.listener.name",
        SettingKind.STRING,
        "",
        "Listener that the other brokers connect to. Default: the first one.",
    ),
    Setting(
        "listener.security.protocol.map",
        SettingKind.LIST,
        _PROTOCOL_MAP,
        "Security protocol of each listener name, NAME:PROTOCOL.",
    ),
    Setting(
        "listeners",
        SettingKind.LIST,
        "",
        "Kafka listeners, NAME://host:port. Default: one PLAINTEXT listener at the address of --kafka.",
    ),
    Setting(
        "max.connection.creation.rate",
        SettingKind.INT,
        str(INT32_MAX),
        "Most new connections in a second.",
        low=1,
    ),
    Setting(
        "max.connections.per.ip",
        SettingKind.INT,
        str(INT32_MAX),
        "Most open connections of one client address.",
        low=0,
    ),
    Setting(
        "max.connections.per.ip.overrides",
        SettingKind.LIST,
        "",
        "Most open connections of single client addresses, address:count.",
    ),
    Setting("quota.window.num", SettingKind.INT, "11", "Windows over which a quota is measured.", low=2, high=1000),
    Setting("quota.window.size.seconds", SettingKind.INT, "1", "Length of one quota window.", low=1, high=3600),
    Setting(
        "sasl.enabled.mechanisms",
        SettingKind.LIST,
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "Login mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        choices=MECHANISMS,
    ),
    Setting(
        "sasl.oauthbearer.clock.skew.seconds",
        SettingKind.INT,
        "30",
        "Difference between the clocks of broker and token issuer that is accepted.",
        low=0,
        high=3600,
    ),
    Setting(
        "sasl.oauthbearer.expected.audience",
        SettingKind.LIST,
        "",
        "Audiences of which a token must name one; empty accepts any.",
    ),
    Setting(
        "sasl.oauthbearer.expected.issuer", SettingKind.STRING, "", "Issuer that a token must name; empty accepts any."
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        SettingKind.LONG,
        "3600000",
        "Time after which the keys of token issuers are read again.",
        low=1000,
    ),
    Setting(
        "sasl.oauthbearer.jwks.endpoint.url",
        SettingKind.STRING,
        "",
        "Where the keys of token issuers are: file:///path, https:// or http:// on loopback.",
    ),
    Setting("sasl.oauthbearer.sub.claim.name", SettingKind.STRING, "sub", "Claim of a token that has the user's name."),
    Setting(
        "sasl.server.max.receive.size",
        SettingKind.INT,
        "65536",
        "Largest request before a client has authenticated.",
        low=1024,
        high=16 * 1024 * 1024,
    ),
    Setting(
        "ssl.certificate.location",
        SettingKind.STRING,
        "",
        "PEM file of the broker's certificate and its chain. Not needed with ssl.keystore.location.",
    ),
    Setting("ssl.cipher.suites", SettingKind.LIST, "", "Cipher suites of TLS 1.2; empty means OpenSSL's default."),
    Setting(
        "ssl.client.auth",
        SettingKind.STRING,
        "none",
        "Client certificates: none, requested or required.",
        choices=("none", "requested", "required"),
    ),
    Setting(
        "ssl.enabled.protocols",
        SettingKind.LIST,
        "TLSv1.2,TLSv1.3",
        "Versions of TLS.",
        choices=("TLSv1.2", "TLSv1.3"),
    ),
    Setting(
        "ssl.endpoint.identification.algorithm",
        SettingKind.STRING,
        "https",
        "Connections to other brokers: https checks that the certificate names the host; empty checks only the CA.",
        choices=("https", ""),
    ),
    Setting("ssl.key.location", SettingKind.STRING, "", "PEM file of the broker's private key."),
    Setting("ssl.key.password", SettingKind.STRING, "", "Password of the private key.", sensitive=True),
    Setting(
        "ssl.keystore.location", SettingKind.STRING, "", "PEM file with the broker's certificate chain and private key."
    ),
    Setting(
        "ssl.principal.mapping.rules",
        SettingKind.STRING,
        "DEFAULT",
        "Rules that turn the subject of a client certificate into a user name.",
    ),
    Setting(
        "ssl.truststore.location",
        SettingKind.STRING,
        "",
        "PEM file of the CAs that sign the certificates of clients and of other brokers.",
    ),
    Setting(
        "super.users",
        SettingKind.STRING,
        "",
        "Users that may do everything, User:name, separated by semicolons.",
    ),
    Setting(
        "tidemill.failing.producer.percentage",
        SettingKind.INT,
        "90",
        "Share of failed Produce requests above which a producer is throttled; 100 means never.",
        low=1,
        high=100,
    ),
    Setting(
        "tidemill.grpc.security",
        SettingKind.STRING,
        AUTO,
        "Security protocol of the gRPC server; auto requires logins as soon as a Kafka listener does. The server has "
        "the ssl.* settings of the broker, or its own as listener.name.grpc.ssl.*.",
        choices=(AUTO, *SECURITY_PROTOCOLS),
    ),
    Setting(
        "tidemill.http.security",
        SettingKind.STRING,
        AUTO,
        "Security protocol of the HTTP server; auto requires logins as soon as a Kafka listener does. The server has "
        "the ssl.* settings of the broker, or its own as listener.name.http.ssl.*.",
        choices=(AUTO, *SECURITY_PROTOCOLS),
    ),
    Setting(
        "tidemill.http.session.ms",
        SettingKind.LONG,
        "43200000",
        "Time after which a login to the console expires.",
        low=1000,
    ),
    Setting(
        "tidemill.unauthenticated.connections.max",
        SettingKind.INT,
        "1000",
        "Most connections that are silent before the TLS handshake, or log in; above it, the oldest one is closed.",
        low=1,
    ),
)
PER_LISTENER = {
    setting.name: setting
    for setting in SECURITY_SETTINGS
    if setting.name.startswith(("ssl.", "sasl.")) or setting.name == "max.connection.creation.rate"
}
LISTENER_PREFIX = "listener.name."


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """The part of BrokerSettings that is about security."""

    advertised_listeners: tuple[str, ...]
    allow_anonymous: bool
    allow_everyone_if_no_acl_found: bool
    authorizer: str
    connection_failed_authentication_delay_ms: int
    connections_max_reauth_ms: int
    inter_broker_listener_name: str
    listener_security_protocol_map: tuple[str, ...]
    listeners: tuple[str, ...]
    max_connection_creation_rate: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: tuple[str, ...]
    quota_window_num: int
    quota_window_size_seconds: int
    sasl_enabled_mechanisms: tuple[str, ...]
    sasl_oauthbearer_clock_skew_seconds: int
    sasl_oauthbearer_expected_audience: tuple[str, ...]
    sasl_oauthbearer_expected_issuer: str
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int
    sasl_oauthbearer_jwks_endpoint_url: str
    sasl_oauthbearer_sub_claim_name: str
    sasl_server_max_receive_size: int
    ssl_certificate_location: str
    ssl_cipher_suites: tuple[str, ...]
    ssl_client_auth: str
    ssl_enabled_protocols: tuple[str, ...]
    ssl_endpoint_identification_algorithm: str
    ssl_key_location: str
    ssl_key_password: str = field(repr=False)
    ssl_keystore_location: str
    ssl_principal_mapping_rules: str
    ssl_truststore_location: str
    super_users: str
    tidemill_failing_producer_percentage: int
    tidemill_grpc_security: str
    tidemill_http_security: str
    tidemill_http_session_ms: int
    tidemill_unauthenticated_connections_max: int
