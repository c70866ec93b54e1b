"""Certificates for development: Python's own TLS accepts them in both directions, and files are safe."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from tidemill.app.certificates import create_certificate
from tidemill.model.errors import InvalidConfig

NOW = datetime.now(UTC)
HOSTS = ("localhost", "127.0.0.1", "::1", "*.Example.com")


def make(folder: Path, name: str, hosts: tuple[str, ...] = (), *, days: int = 30, overwrite: bool = False) -> Path:
    return create_certificate(folder, name, hosts, days=days, now=NOW, overwrite=overwrite).path


def server_context(folder: Path, name: str = "broker") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / f"{name}.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def client_context(folder: Path, name: str | None = "alice") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if name is not None:
        context.load_cert_chain(folder / f"{name}.pem")
    return context


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Both ends of one handshake in memory; the server's end, which knows the client's certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=host)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for end in (ours, theirs):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                pass
    assert done == {ours, theirs}
    return theirs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path / "certs", "broker", HOSTS)
    make(tmp_path / "certs", "alice")
    return tmp_path / "certs"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "b1.example.com"])
def test_both_ends_accept_each_other(folder: Path, host: str) -> None:
    end = handshake(server_context(folder), client_context(folder), host)
    certificate = end.getpeercert()
    assert certificate is not None
    assert certificate["subject"] == ((("commonName", "alice"),),)


def test_the_certificate_of_a_broker_logs_in_to_other_brokers(folder: Path) -> None:
    end = handshake(server_context(folder), client_context(folder, "broker"), "localhost")
    assert end.getpeercert() is not None


def test_another_host_is_refused(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="evil"):
        handshake(server_context(folder), client_context(folder), "evil")


def test_the_certificate_of_a_client_cannot_serve(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"purpose|mismatch"):
        handshake(server_context(folder, "alice"), client_context(folder), "alice")


def test_another_authority_is_refused(folder: Path, tmp_path: Path) -> None:
    make(tmp_path / "other", "alice")
    stranger = client_context(folder, None)
    stranger.load_cert_chain(tmp_path / "other" / "alice.pem")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(folder), stranger, "localhost")


def test_keys_are_private_and_nothing_else_is_left(folder: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert {name: mode & 0o077 for name, mode in modes.items() if name != "ca.pem"} == dict.fromkeys(
        ["ca.key", "broker.pem", "alice.pem"], 0
    )
    assert set(modes) == {"ca.pem", "ca.key", "broker.pem", "alice.pem"}
    assert b"PRIVATE" not in (folder / "ca.pem").read_bytes()


def test_extensions(folder: Path) -> None:
    broker = x509.load_pem_x509_certificate((folder / "broker.pem").read_bytes())
    names = broker.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "*.example.com"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert broker.not_valid_after_utc - NOW < timedelta(days=30, seconds=1)
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    broker.verify_directly_issued_by(authority)


def test_the_second_certificate_keeps_the_authority(folder: Path) -> None:
    before = (folder / "ca.pem").read_bytes(), (folder / "ca.key").read_bytes()
    assert not create_certificate(folder, "bob", (), days=1, now=NOW).authority_created
    make(folder, "alice", overwrite=True)
    assert ((folder / "ca.pem").read_bytes(), (folder / "ca.key").read_bytes()) == before


def test_a_certificate_is_replaced_only_on_request(folder: Path) -> None:
    before = (folder / "alice.pem").read_bytes()
    with pytest.raises(InvalidConfig, match=r"alice\.pem exists; replace it with --force"):
        make(folder, "alice")
    assert (folder / "alice.pem").read_bytes() == before
    make(folder, "alice", overwrite=True)
    assert (folder / "alice.pem").read_bytes() != before


def test_replacing_does_not_write_through_a_link(folder: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder / "mallory.pem").symlink_to(victim)
    make(folder, "mallory", overwrite=True)
    assert victim.read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc/passwd", "-x", ".hidden", "a\0b", "a\nb", "ca", "CA", "x" * 65, "é"]
)
def test_names_that_are_no_file_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidConfig):
        make(tmp_path / "certs", name)
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize("host", ["", "a b", "http://x", "x:1", "-x", "é.example", "a..b", "x" * 64, "*", "a\n"])
def test_hosts_that_are_none(tmp_path: Path, host: str) -> None:
    with pytest.raises(InvalidConfig, match="is not a host name or an IP address"):
        make(tmp_path / "certs", "broker", (host,))


def test_half_an_authority_is_not_completed(folder: Path) -> None:
    (folder / "ca.key").unlink()
    with pytest.raises(InvalidConfig, match=r"ca\.key is missing"):
        make(folder, "bob")


def test_an_authority_with_the_key_of_another(folder: Path, tmp_path: Path) -> None:
    make(tmp_path / "other", "x")
    (folder / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    with pytest.raises(InvalidConfig, match="is not the key of"):
        make(folder, "bob")
    (folder / "ca.key").write_text("nonsense")
    with pytest.raises(InvalidConfig, match="not a CA that this command has made"):
        make(folder, "bob")


def test_no_certificate_outlives_its_authority(folder: Path) -> None:
    with pytest.raises(InvalidConfig, match="expires in 3650 days"):
        make(folder, "bob", days=3651)


def test_the_first_certificate_may_be_valid_for_longer_than_the_usual_authority(tmp_path: Path) -> None:
    make(tmp_path / "long", "broker", HOSTS, days=5000)
