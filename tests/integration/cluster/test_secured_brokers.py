"""Two brokers with TLS and logins: they replicate over a listener of their own, and share users and ACLs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from tests.support.certificates import Authority
from tests.support.cluster_processes import Brokers, running_brokers
from tests.support.waiting import eventually

WAIT_S = 60
PASSWORD = "admin-password"


class SecuredBrokers:
    """The cluster, and the commands of its administrator."""

    def __init__(self, brokers: Brokers, authority: Authority, folder: Path) -> None:
        self._brokers, self._authority, self._folder = brokers, authority, folder
        (folder / "password").write_text(PASSWORD)

    def login(self, broker: int, name: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": str(self._brokers.servers[broker]["OUTSIDE"]),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self._authority.path,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": PASSWORD,
        }

    def run(self, *words: str, by: int | None = None) -> str:
        """Run a command, by default without a broker."""
        command = [sys.executable, "-m", "tidemill", *words]
        if by is not None:
            file = self._folder / "admin.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in self.login(by, "admin").items()))
            command += ["--client", str(file), "--bootstrap", self.login(by, "admin")["bootstrap.servers"]]
        ran = subprocess.run(
            command, cwd=self._folder, env=os.environ, capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def produced(self, broker: int, name: str, topic: str) -> KafkaError | None:
        """The error of one record that both replicas must have, or None."""
        errors: list[KafkaError | None] = []
        producer = Producer({**self.login(broker, name), "acks": "all", "log_level": 0})
        producer.produce(topic, b"tea", on_delivery=lambda error, _: errors.append(error))
        producer.flush(WAIT_S)
        return errors[0]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "certs")
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SASL_SSL",
        "inter.broker.listener.name": "INSIDE",
        "listener.name.inside.ssl.client.auth": "required",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "ssl.truststore.location": authority.path,
    }
    with running_brokers(count=2, settings=settings) as brokers:
        made = SecuredBrokers(brokers, authority, folder)
        etcd = ("--coordination", brokers.flags(1)["coordination"])
        made.run("user", "add", "admin", "--super", "--password-file", "password", *etcd)
        yield made


def test_brokers_replicate_over_a_listener_with_certificates(cluster: SecuredBrokers) -> None:
    create = ("topic", "create", "orders", "--replication-factor", "2", "--config", "min.insync.replicas=2")
    cluster.run(*create, by=1)
    assert cluster.produced(1, "admin", "orders") is None
    assert cluster.produced(2, "admin", "orders") is None


def test_users_and_acls_of_one_broker_count_at_the_other(cluster: SecuredBrokers) -> None:
    cluster.run("topic", "create", "bills", by=1)
    cluster.run("user", "add", "shop", "--password-file", "password", by=1)
    refused = cluster.produced(2, "shop", "bills")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    cluster.run("acl", "grant", "shop", "--producer", "--topic", "bills", by=1)
    eventually(lambda: cluster.produced(2, "shop", "bills") is None, "the other broker does not know the ACL")
    cluster.run("acl", "revoke", "shop", "--all", "--yes", by=2)
    eventually(lambda: cluster.produced(1, "shop", "bills") is not None, "the other broker still allows it")
