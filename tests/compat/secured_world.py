"""A broker with a SASL_SSL and an mTLS listener, users with the same rights on both, and their logins."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.support.certificates import Authority

from tidemill.testing import Broker

WAIT_S = 30.0
ADMIN_PASSWORD = "admin-password"
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
USERS = {"SCRAM-SHA-256": "alice", "SCRAM-SHA-512": "bob"}
CERTIFICATE_USER = "carol"
MTLS = "mTLS"
WAYS = (*USERS, MTLS)
"""How the clients log in."""

READ_ONLY, WRITE_ONLY, DENIED = "read-only", "write-only", "shared-denied"
OWN_GROUP, FOREIGN_GROUP = "team-", "foreign"


def shared_topic(client: str, way: str) -> str:
    """The topic that one client writes and reads with one kind of login."""
    return f"shared-{client}-{way}".lower()


@dataclass(frozen=True)
class Login:
    """What a client is configured with. `certificate` is a PEM file with certificate and key, for mTLS."""

    bootstrap: str
    authority: str
    mechanism: str = ""
    user: str = ""
    password: str = ""
    certificate: str = ""

    @property
    def protocol(self) -> str:
        """The security protocol, in Kafka's spelling."""
        return "SASL_SSL" if self.mechanism else "SSL"

    def with_password(self, password: str) -> "Login":
        """The same login with another password."""
        return replace(self, password=password)

    def librdkafka(self) -> dict[str, str]:
        """The properties of librdkafka."""
        found = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "ssl.ca.location": self.authority,
        }
        if self.mechanism:
            found |= {"sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}
        if self.certificate:
            found |= {"ssl.certificate.location": self.certificate, "ssl.key.location": self.certificate}
        return found

    def java(self) -> dict[str, str]:
        """The properties of the Java client."""
        found = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
        }
        if self.mechanism:
            module = "org.apache.kafka.common.security.scram.ScramLoginModule"
            found |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f'{module} required username="{self.user}" password="{self.password}";',
            }
        if self.certificate:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
        return found

    def words(self) -> dict[str, str]:
        """The properties of the Go program."""
        words = {"bootstrap": self.bootstrap, "ca": self.authority, "certificate": self.certificate}
        return words | {"mechanism": self.mechanism, "user": self.user, "password": self.password}


class SecuredWorld:
    """A running broker, its two authorities and the logins of its users."""

    def __init__(self, broker: Broker, authority: Authority, stranger: Authority, certificate: str) -> None:
        self.broker = broker
        self._authority, self._stranger, self._certificate = authority, stranger, certificate
        self.admin = AdminClient(self._scram("SCRAM-SHA-512", "admin", ADMIN_PASSWORD).librdkafka())

    def login(self, way: str) -> Login:
        """A login that the broker accepts."""
        if way == MTLS:
            return Login(self.broker.listener("SSL"), self._authority.path, certificate=self._certificate)
        return self._scram(way, USERS[way], f"{USERS[way]}-password")

    def stranger_login(self) -> Login:
        """An mTLS login with a certificate that another CA has signed."""
        foreign = self._stranger.issue(f"/CN={CERTIFICATE_USER}", "foreign")
        return replace(self.login(MTLS), certificate=foreign)

    def without_certificate(self) -> Login:
        """An mTLS login without a certificate."""
        return replace(self.login(MTLS), certificate="")

    def distrusting(self, way: str) -> Login:
        """A login that trusts another CA than the one of the broker."""
        return replace(self.login(way), authority=self._stranger.path)

    def add_topics(self, names: list[str]) -> None:
        """Create topics with one partition and one record."""
        for future in self.admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            future.result(WAIT_S)

    def add_users(self) -> None:
        """Create the users with passwords, and give all users the same rights."""
        for way, name in USERS.items():
            wanted = UserScramCredentialUpsertion(
                name, ScramCredentialInfo(SCRAM[way], 4096), f"{name}-password".encode()
            )
            self.admin.alter_user_scram_credentials([wanted])[name].result(WAIT_S)
        rules = [rule for name in (*USERS.values(), CERTIFICATE_USER) for rule in _rights(f"User:{name}")]
        for future in self.admin.create_acls(rules).values():
            future.result(WAIT_S)

    def _scram(self, mechanism: str, user: str, password: str) -> Login:
        return Login(self.broker.listener("SASL_SSL"), self._authority.path, mechanism, user, password)


def _rights(principal: str) -> Iterator[AclBinding]:
    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    read, write = AclOperation.READ, AclOperation.WRITE
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    yield AclBinding(topic, READ_ONLY, literal, principal, "*", read, allow)
    yield AclBinding(topic, WRITE_ONLY, literal, principal, "*", write, allow)
    yield AclBinding(topic, "shared-", prefixed, principal, "*", read, allow)
    yield AclBinding(topic, "shared-", prefixed, principal, "*", write, allow)
    yield AclBinding(topic, DENIED, literal, principal, "*", write, deny)
    yield AclBinding(group, OWN_GROUP, prefixed, principal, "*", read, allow)


@contextmanager
def secured_world(folder: Path, settings: Mapping[str, object] | None = None) -> Iterator[SecuredWorld]:
    """Run a broker in a process of its own, with users, rights and the topics that are not shared."""
    authority, stranger = Authority(folder / "ca"), Authority(folder / "other", "other-ca")
    listeners = {
        "listeners": "SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "ssl.truststore.location": authority.path,
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "group.initial.rebalance.delay.ms": 0,
        "connection.failed.authentication.delay.ms": 0,
    }
    with Broker(process=True, settings=listeners | dict(settings or {}), admin_password=ADMIN_PASSWORD) as broker:
        world = SecuredWorld(broker, authority, stranger, authority.issue(f"/CN={CERTIFICATE_USER}", "client"))
        world.add_users()
        world.add_topics([READ_ONLY, WRITE_ONLY, DENIED])
        yield world
