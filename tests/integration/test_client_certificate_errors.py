"""What the client says about certificates that are expired, are missing, or have another name."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.certificates import Authority
from tests.support.waiting import eventually

from tidemill.client.kafka import KafkaClient
from tidemill.client.kafka.errors import AuthenticationFailed
from tidemill.client.kafka.options import parse_options
from tidemill.testing import Broker
from tidemill.testing.child import Child


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    """Listeners with an expired certificate, with one for another name, and with one that asks for the client's."""
    settings = {
        "listeners": "EXPIRED://127.0.0.1:0,OTHER://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "listener.security.protocol.map": "EXPIRED:SSL,OTHER:SSL,MUTUAL:SSL",
        "listener.name.expired.ssl.keystore.location": authority.issue("/CN=expired", "expired", days=-1),
        "listener.name.other.ssl.keystore.location": authority.issue("/CN=other", "other", hosts="DNS:elsewhere"),
        "listener.name.mutual.ssl.keystore.location": authority.issue("/CN=mutual", "mutual"),
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.truststore.location": authority.path,
        "authorizer": "none",
    }
    with Broker(settings=settings, flags={"grpc": "none", "http": "none"}) as running:
        yield running


def refusal(broker: Broker, authority: Authority, listener: str, certificate: str | None = None) -> str:
    """The error of a client, without the address of the broker."""
    given = {"bootstrap.servers": broker.listener(listener), "security.protocol": "SSL"}
    given["ssl.ca.location"] = authority.path
    if certificate is not None:
        given |= {"ssl.certificate.location": certificate, "ssl.key.location": certificate}
    with ExitStack() as stack, pytest.raises(AuthenticationFailed) as caught:
        stack.enter_context(KafkaClient(parse_options(given))).users()
    return str(caught.value).removeprefix("list users: ").replace(broker.listener(listener), "BROKER")


def test_an_expired_certificate_of_the_broker(broker: Broker, authority: Authority) -> None:
    advice = "replace the certificate of the broker, or correct the clock of this machine"
    assert refusal(broker, authority, "EXPIRED") == f"BROKER: certificate has expired; {advice}"


def test_a_broker_warns_about_its_certificates(authority: Authority, tmp_path: Path) -> None:
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": authority.issue("/CN=late", "l", days=-1)}
    flags = {"grpc": "none", "http": "none", "data-dir": str(tmp_path / "data")}
    with (tmp_path / "log").open("wb") as output:
        child = Child(flags, settings, {}, output)
        try:
            child.start()
            line = eventually(lambda: [each for each in _lines(tmp_path / "log") if "certificate_expires" in each])[0]
        finally:
            child.stop()
    assert "expired on" in line
    assert "clients refuse it; replace the file" in line


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_certificate_for_another_name(broker: Broker, authority: Authority) -> None:
    said = refusal(broker, authority, "OTHER")
    assert "mismatch" in said
    assert said.endswith("; connect to a name that the certificate has, or give the broker one for this name")


def test_a_client_without_a_certificate(broker: Broker, authority: Authority) -> None:
    wanted = "BROKER requires a client certificate; set ssl.certificate.location and ssl.key.location"
    assert refusal(broker, authority, "MUTUAL") == wanted


def test_an_expired_certificate_of_the_client(broker: Broker, authority: Authority) -> None:
    expired = authority.issue("/CN=late", "late", days=-1)
    said = refusal(broker, authority, "MUTUAL", expired)
    assert said.startswith("BROKER refuses the client certificate, which has expired; renew ssl.certificate.location")


def test_a_certificate_of_another_authority(
    broker: Broker, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    foreign = Authority(tmp_path_factory.mktemp("foreign"), "foreign-ca").issue("/CN=foreign", "foreign")
    said = refusal(broker, authority, "MUTUAL", foreign)
    assert said.startswith("BROKER does not trust the CA that signed the client certificate")
