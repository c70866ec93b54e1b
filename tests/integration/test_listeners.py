"""Several listeners on one broker: their addresses, TLS, client certificates, and certificates that change."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.support.certificates import Authority
from tests.support.waiting import eventually

from tidemill.testing import Broker


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,TLS://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "advertised.listeners": "INSIDE://localhost:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,TLS:SSL,MUTUAL:SSL",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.location": authority.path,
        "authorizer": "none",
    }
    with Broker(settings=settings) as running:
        yield running


def tls(authority: Authority, **more: str) -> dict[str, str]:
    return {"security.protocol": "ssl", "ssl.ca.location": authority.path, **more}


def brokers_seen(address: str, **settings: str) -> set[str]:
    client = AdminClient({"bootstrap.servers": address, "log_level": 0, **settings})
    return {f"{each.host}:{each.port}" for each in client.list_topics(timeout=10).brokers.values()}


def test_a_client_gets_the_address_of_its_listener(broker: Broker, authority: Authority) -> None:
    inside, outside = broker.listener("INSIDE"), broker.listener("TLS")
    assert brokers_seen(inside) == {inside.replace("127.0.0.1", "localhost")}
    assert brokers_seen(outside, **tls(authority)) == {outside}


def test_records_go_through_tls(broker: Broker, authority: Authority) -> None:
    producer = Producer({"bootstrap.servers": broker.listener("TLS"), **tls(authority)})
    for number in range(1_000):
        producer.produce("through-tls", str(number) * 100)
    assert producer.flush(30) == 0


def test_a_client_without_a_certificate_is_refused(broker: Broker, authority: Authority) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": broker.listener("MUTUAL"), "log_level": 0, **tls(authority)}).list_topics(
            timeout=2
        )


def test_a_client_with_a_certificate_is_served(broker: Broker, authority: Authority) -> None:
    mine = authority.issue("/O=Shop/CN=alice", "alice")
    more = {"ssl.certificate.location": mine, "ssl.key.location": mine}
    assert brokers_seen(broker.listener("MUTUAL"), **tls(authority, **more)) == {broker.listener("MUTUAL")}


def test_a_certificate_of_another_ca_is_refused(broker: Broker, authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other-ca").issue("/CN=alice", "alice")
    more = {"ssl.certificate.location": other, "ssl.key.location": other}
    with pytest.raises(KafkaException):
        AdminClient(
            {"bootstrap.servers": broker.listener("MUTUAL"), "log_level": 0, **tls(authority, **more)}
        ).list_topics(timeout=2)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_learns_that_its_certificate_is_missing(
    broker: Broker, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = ssl.create_default_context(cafile=authority.path)
    context.maximum_version = version
    host, port = broker.listener("MUTUAL").split(":")
    with (
        socket.create_connection((host, int(port)), 5) as plain,
        pytest.raises(ssl.SSLError, match=r"HANDSHAKE_FAILURE|CERTIFICATE_REQUIRED"),
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        secured.recv(1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_of_tls_are_refused(broker: Broker, version: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = context.maximum_version = version
    host, port = broker.listener("TLS").split(":")
    with socket.create_connection((host, int(port)), 5) as plain, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(plain).recv(1)


def test_a_replaced_certificate_is_used_without_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.servers.kafka.listener.SWEEP_INTERVAL_S", 0.05)
    authority = Authority(tmp_path)
    file = Path(authority.issue("/CN=first", "broker"))
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(file)}
    with Broker(settings=settings) as running:
        assert _subject(running, authority) == "first"
        file.write_text("not a certificate\n")
        file.write_text(Path(authority.issue("/CN=second", "next")).read_text())
        eventually(lambda: _subject(running, authority) == "second")


def _subject(broker: Broker, authority: Authority) -> str:
    host, port = broker.listener("SSL").split(":")
    context = ssl.create_default_context(cafile=authority.path)
    with (
        socket.create_connection((host, int(port)), 5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        certificate = secured.getpeercert() or {}
    return dict(part[0] for part in certificate["subject"])["commonName"]  # type: ignore[misc]
