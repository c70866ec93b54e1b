"""A broker process that requires logins, with users, rights, certificates, tokens and a log, for attacks on all of it.

Listeners: LOGIN (SASL_SSL), CLEAR (SASL_PLAINTEXT), MUTUAL (SSL, with a client certificate), OPTIONAL (SSL, with or
without one). Every password and token is random, so that a search for it in a log finds a leak.
"""

import base64
import hashlib
import json
import os
import secrets
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from tests.hostile.attacked import TOPIC, HonestClient, HonestLogin, watched
from tests.hostile.frames import Peer
from tests.hostile.logins import log_in
from tests.support.certificates import Authority
from tests.support.tokens import Issuer

from tidemill.settings import ADMIN_PASSWORD_FILE_VARIABLE
from tidemill.testing.child import Child

CREATE_ACLS, ALTER_SCRAM, CREATE_TOPICS = 30, 51, 19
LITERAL, PREFIXED = 3, 4
ALLOW, DENY = 3, 2
TOPIC_RESOURCE, GROUP_RESOURCE, CLUSTER_RESOURCE, TRANSACTION_RESOURCE = 2, 3, 4, 5
OPERATIONS = {"READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "DESCRIBE": 8, "DESCRIBE_CONFIGS": 10, "ALL": 2}
ISSUER, AUDIENCE = "https://issuer.example", "tidemill"
RULES = "RULE:^CN=([a-z]+),OU=clients$/$1/,RULE:^CN=(.*)$/cert-$1/L"
SALT = b"a salt of 16 byte"
ITERATIONS = 4096
SETTINGS = {
    "listeners": "LOGIN://127.0.0.1:0,CLEAR://127.0.0.1:0,MUTUAL://127.0.0.1:0,OPTIONAL://127.0.0.1:0",
    "listener.security.protocol.map": "LOGIN:SASL_SSL,CLEAR:SASL_PLAINTEXT,MUTUAL:SSL,OPTIONAL:SSL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER",
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "sasl.oauthbearer.expected.audience": AUDIENCE,
    "sasl.oauthbearer.clock.skew.seconds": "0",
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.optional.ssl.client.auth": "requested",
    "ssl.principal.mapping.rules": RULES,
    "connection.failed.authentication.delay.ms": "1",
    "auto.create.topics.enable": "true",
    "tidemill.failing.producer.percentage": "100",
}


class SecuredBroker:
    """The running broker. `admin` is a super user, `alice` the honest client, `mallory` the attacker."""

    def __init__(self, folder: Path, child: Child, passwords: Mapping[str, str], authority: Authority) -> None:
        self._folder = folder
        self._child = child
        self.passwords = dict(passwords)
        self.authority = authority
        self.issuer = Issuer("first")
        self.addresses: dict[str, tuple[str, int]] = {}

    @property
    def log_file(self) -> Path:
        """Everything that the broker has logged."""
        return self._folder / "log"

    @property
    def process(self) -> psutil.Process:
        """The broker's process."""
        return psutil.Process(self._child.pid)

    def tls(self, certificate: str | None = None) -> ssl.SSLContext:
        """A context for clients, with a certificate if a file is given."""
        context = ssl.create_default_context(cafile=self.authority.path)
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    def peer(self, listener: str = "CLEAR", certificate: str | None = None, timeout_s: float = 30.0) -> Peer:
        """A connection without a login."""
        tls = None if listener == "CLEAR" else self.tls(certificate)
        return Peer(self.addresses[listener], timeout_s, tls=tls)

    def logged_in(self, name: str, listener: str = "CLEAR", mechanism: str = "SCRAM-SHA-256") -> Peer:
        """A connection of a user."""
        peer = self.peer(listener)
        try:
            return log_in(peer, name, self.passwords[name], mechanism)
        except BaseException:
            peer.close()
            raise

    def add_user(self, name: str) -> str:
        """Add a user with both SCRAM credentials; the password."""
        password = self.passwords[name] = secret(name)
        upsertions = []
        for number, digest in ((1, "sha256"), (2, "sha512")):
            salted = hashlib.pbkdf2_hmac(digest, password.encode(), SALT, ITERATIONS)
            upsertions.append(
                {
                    "name": name,
                    "mechanism": number,
                    "iterations": ITERATIONS,
                    "salt": SALT,
                    "salted_password": salted,
                }
            )
        with self.logged_in("admin") as peer:
            answer = peer.ask(ALTER_SCRAM, 0, {"deletions": [], "upsertions": upsertions})
        assert all(not each.error_code for each in answer.results), answer
        return password

    def grant(
        self,
        user: str,
        operation: str,
        name: str,
        *,
        kind: int = TOPIC_RESOURCE,
        pattern: int = LITERAL,
        permission: int = ALLOW,
        host: str = "*",
    ) -> None:
        """Add an ACL."""
        creation = {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": pattern,
            "principal": f"User:{user}",
            "host": host,
            "operation": OPERATIONS[operation],
            "permission_type": permission,
        }
        with self.logged_in("admin") as peer:
            answer = peer.ask(CREATE_ACLS, 3, {"creations": [creation]})
        assert not answer.results[0].error_code, answer

    def create_topic(self, name: str) -> None:
        """Create a topic with one partition."""
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        with self.logged_in("admin") as peer:
            answer = peer.ask(CREATE_TOPICS, 5, {"topics": [topic], "timeout": 30_000})
        assert not answer.topics[0].error_code, answer

    def state(self) -> str:
        """Everything that an attack must not change: topics, settings, ACLs, users and groups."""
        with self.logged_in("admin") as peer:
            metadata = peer.ask(3, 12, {"topics": None})
            any_acl: dict[str, Any] = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
            any_acl |= {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
            acls = peer.ask(29, 3, any_acl)
            users = peer.ask(50, 0, {"users": None})
            named = [{"resource_type": 4, "resource_name": "", "configuration_keys": None}]
            named += [{"resource_type": 2, "resource_name": each.name} for each in metadata.topics]
            settings = peer.ask(32, 4, {"resources": [{**each, "configuration_keys": None} for each in named]})
            groups = peer.ask(16, 4, {"states_filter": []})
        topics = sorted((each.name, str(each.topic_id), len(each.partitions)) for each in metadata.topics)
        parts = [
            topics,
            acls.resources,
            users.results,
            settings.results,
            sorted(each.group_id for each in groups.groups),
        ]
        return "\n".join(str(each) for each in parts)

    def log_text(self) -> str:
        """The log so far."""
        return self.log_file.read_text(errors="replace")

    def leaks(self, text: str | bytes) -> list[str]:
        """The names of the secrets that a text has, as they are or in base64."""
        found = text.encode(errors="replace") if isinstance(text, str) else text
        return [name for name, password in self.passwords.items() if _is_in(password.encode(), found)]

    @contextmanager
    def watched(self) -> Iterator[HonestClient]:
        """An attack next to alice, who connects by TLS and SCRAM again and again."""
        login = HonestLogin(self.authority.path, "alice", "SCRAM-SHA-256", self.passwords["alice"])
        with watched(self.addresses["LOGIN"], self._child.pid, login) as client:
            yield client


def _is_in(password: bytes, text: bytes) -> bool:
    if password in text:
        return True
    # In base64 a text looks different at each of three places; the first and the last characters depend on others.
    forms = (base64.b64encode(b"\0" * place + password)[4 if place else 0 : -4] for place in range(3))
    return any(each in text for each in forms)


def secret(label: str) -> str:
    """A random password that can be found in a log."""
    return f"secret-{label}-{secrets.token_hex(12)}"


@contextmanager
def secured_broker(
    settings: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
) -> Iterator[SecuredBroker]:
    """Start the broker with its users, and a topic of the honest client."""
    with tempfile.TemporaryDirectory() as temporary, open(os.path.join(temporary, "log"), "w+b") as log:  # noqa: PTH118, PTH123
        folder = Path(temporary)
        authority = Authority(folder / "certificates")
        issuer = Issuer("first", "second")
        passwords = {name: secret(name) for name in ("admin", "key", "cluster")}
        for name, text in (*passwords.items(), ("set", f"ssl.key.password={passwords['key']}")):
            (folder / f"{name}.secret").write_text(text)
        own = {
            **SETTINGS,
            "ssl.keystore.location": encrypted(authority.issue("/CN=broker", "broker"), passwords["key"]),
            "ssl.truststore.location": authority.path,
            "sasl.oauthbearer.jwks.endpoint.url": issuer.publish(folder / "keys.json"),
            **(settings or {}),
        }
        servers = {"kafka": "127.0.0.1:0", "grpc": "none", "http": "none"}
        child = Child(
            {"data-dir": str(folder / "data"), **servers, **(flags or {})},
            own,
            {
                ADMIN_PASSWORD_FILE_VARIABLE: str(folder / "admin.secret"),
                "TIDEMILL_SET_FILE": str(folder / "set.secret"),
                "TIDEMILL_CLUSTER_SECRET_FILE": str(folder / "cluster.secret"),
            },
            log,
        )
        try:
            found = child.start()
            broker = SecuredBroker(folder, child, passwords, authority)
            broker.issuer = issuer
            broker.addresses = {name: (at.host, at.port) for name, at in found.items() if at is not None}
            for name in ("alice", "mallory"):
                broker.add_user(name)
            broker.create_topic(TOPIC)
            for operation in ("READ", "WRITE"):
                broker.grant("alice", operation, TOPIC)
            yield broker
            assert broker.leaks(broker.log_text()) == []
        finally:
            child.stop()


def encrypted(pem: str, password: str) -> str:
    """The same certificate and key, with the key encrypted."""
    key = subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", pem, "-passout", "stdin"],
        input=password.encode(),
        capture_output=True,
        check=True,
    ).stdout
    text = Path(pem).read_text()
    certificate = text[: text.index("-----BEGIN PRIVATE KEY-----")] if "-----BEGIN PRIVATE KEY-----" in text else text
    path = Path(pem).with_suffix(".encrypted.pem")
    path.write_text(certificate + key.decode())
    return str(path)


def unsigned(head: Mapping[str, Any], claims: Mapping[str, Any], signature: bytes = b"") -> str:
    """A token made by hand."""
    parts = (json.dumps(head).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts)
