"""TLS of a listener: a client whose handshake fails gets the alert that says why, and only then the failure counts."""

import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.certificates import Authority

from tidemill.model.broker_settings import parse
from tidemill.security.tls import AlertingHandshake, ReloadingContext, peer_context

STEPS_MAX = 10


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def context(authority: Authority) -> ReloadingContext:
    settings = {
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "ssl.truststore.location": authority.path,
        "ssl.client.auth": "required",
    }
    return ReloadingContext.open(parse(settings).security, "SSL")


class Ends:
    """Both ends of one connection, in memory."""

    def __init__(self, context: ReloadingContext, client: ssl.SSLContext, host: str = "localhost") -> None:
        self.to_broker, self.to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.to_client, self.to_broker, server_hostname=host)
        self.broker = context.wrap_bio(self.to_broker, self.to_client, server_side=True)

    def shake_hands(self) -> set[ssl.SSLObject]:
        """Let both ends take steps; the ends that are done. A client that is done reads."""
        done: set[ssl.SSLObject] = set()
        for _ in range(STEPS_MAX):
            for end in (self.client, self.broker):
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                    done.add(end)
                    self.client.read(1)
        return done


def client_context(authority: Authority, version: ssl.TLSVersion, certificate: str = "") -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority.path)
    made.minimum_version = made.maximum_version = version
    if certificate:
        made.load_cert_chain(certificate)
    return made


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_certificate_of_the_ca_is_accepted(
    context: ReloadingContext, authority: Authority, version: ssl.TLSVersion
) -> None:
    ends = Ends(context, client_context(authority, version, authority.issue("/CN=alice", "alice")))
    assert ends.shake_hands() == {ends.client, ends.broker}
    certificate = ends.broker.getpeercert()
    assert certificate is not None
    assert certificate["subject"] == ((("commonName", "alice"),),)


def no_certificate(folder: Path) -> str:
    del folder
    return ""


def foreign_certificate(folder: Path) -> str:
    return Authority(folder, "other-ca").issue("/CN=alice", "alice")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("make", "alert", "failure"),
    [
        (no_certificate, r"HANDSHAKE_FAILURE|CERTIFICATE_REQUIRED", "did not return a certificate"),
        (foreign_certificate, "UNKNOWN_CA", "certificate verify failed"),
    ],
)
def test_the_alert_reaches_the_client(
    context: ReloadingContext,
    authority: Authority,
    tmp_path: Path,
    version: ssl.TLSVersion,
    make: Callable[[Path], str],
    alert: str,
    failure: str,
) -> None:
    ends = Ends(context, client_context(authority, version, make(tmp_path)))
    with pytest.raises(ssl.SSLError, match=alert):
        ends.shake_hands()
    for _ in range(2):
        with pytest.raises(ssl.SSLError, match=failure):
            ends.broker.do_handshake()


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x10\0\x12\0\0\0\0\0\1\0\3abc\0"])
def test_a_client_that_does_not_speak_tls_is_closed_at_once(context: ReloadingContext, said: bytes) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    broker = context.wrap_bio(incoming, outgoing, server_side=True)
    assert isinstance(broker, AlertingHandshake)
    incoming.write(said)
    with pytest.raises(ssl.SSLError, match=r"HTTP_REQUEST|WRONG_VERSION_NUMBER") as refused:
        broker.do_handshake()
    assert not isinstance(refused.value, ssl.SSLWantReadError)


@pytest.mark.parametrize(("host", "algorithm"), [("localhost", "https"), ("127.0.0.1", "https"), ("other.example", "")])
def test_a_broker_accepts_another_whose_certificate_names_its_host(
    authority: Authority, context: ReloadingContext, host: str, algorithm: str
) -> None:
    ends = Ends(context, peer(authority, algorithm), host)
    assert ends.shake_hands() >= {ends.client, ends.broker}


def test_a_client_of_the_same_ca_cannot_pretend_to_be_a_broker(authority: Authority, context: ReloadingContext) -> None:
    """The certificate is of the CA, and names another host."""
    ends = Ends(context, peer(authority, "https"), "other.example")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'other\.example'"):
        ends.shake_hands()


def peer(authority: Authority, algorithm: str) -> ssl.SSLContext:
    """The context of another broker."""
    settings = {
        "ssl.keystore.location": authority.issue("/CN=other", "other"),
        "ssl.truststore.location": authority.path,
        "ssl.endpoint.identification.algorithm": algorithm,
    }
    return peer_context(parse(settings).security, "SSL")


def test_a_broker_without_a_truststore_trusts_itself_and_nothing_that_its_ca_signs(authority: Authority) -> None:
    settings = parse({"ssl.keystore.location": authority.issue("/CN=own", "own")}).security
    own = ReloadingContext.open(settings, "SSL")
    ends = Ends(own, peer_context(settings, "SSL", trusts_itself=True))
    assert ends.shake_hands() == {ends.client, ends.broker}
    other = parse({"ssl.keystore.location": authority.issue("/CN=third", "third")}).security
    for server, trusts_itself in ((ReloadingContext.open(other, "SSL"), True), (own, False)):
        with pytest.raises(ssl.SSLCertVerificationError):
            Ends(server, peer_context(settings, "SSL", trusts_itself=trusts_itself)).shake_hands()
