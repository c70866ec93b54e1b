"""TLS: certificates that prove nothing, names that look like others, and bytes that are no handshake."""

import datetime as dt
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.hostile.frames import request
from tests.hostile.odd_certificates import DAY, Signer, Subject, issue, parts
from tests.hostile.secured import SecuredBroker, secured_broker
from tests.support.certificates import Authority

WAIT_S = 20.0
HALF_OPEN = 300
CLIENTS = parts(("OU", "clients"), ("CN", "alice"))
HELLO = b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03" + bytes(32) + b"\x00\x00\x02\xc0\x2f\x01\x00\x00\x00"


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker() as started:
        before = started.state()
        with started.watched():
            yield started
        assert started.state() == before
        assert '"level": "error"' not in started.log_text()


@pytest.fixture(scope="module")
def signer(broker: SecuredBroker) -> Signer:
    folder = Path(broker.authority.path).parent
    return Signer.of(folder / "ca.pem", folder / "ca.key")


def is_refused(broker: SecuredBroker, listener: str, certificate: str | None) -> bool:
    """Whether the handshake fails. With TLS 1.3 the client notices at its first read."""
    try:
        with broker.peer(listener, certificate) as peer:
            peer.send(request(18, 0, {}))
            return peer.receive() is None
    except (ConnectionError, ssl.SSLError):
        return True


def own_authority(file: Path, _: Signer) -> None:
    """A CA with the same name, made by the attacker."""
    made = Authority(file.parent / "other", "test-ca")
    ca = Signer.of(Path(made.path), Path(made.path).with_name("ca.key"))
    issue(file, CLIENTS, ca)


def signed_by_a_client(file: Path, signer: Signer) -> None:
    """The attacker has an honest certificate and signs another one with it."""
    client = issue(file.with_suffix(".client"), parts(("CN", "mallory")), signer)
    issue(file, CLIENTS, client, chain=[client.certificate])


CERTIFICATES: dict[str, Callable[[Path, Signer], object]] = {
    "expired": lambda file, ca: issue(file, CLIENTS, ca, starts=-3 * DAY, ends=-DAY),
    "expired a second ago": lambda file, ca: issue(file, CLIENTS, ca, ends=dt.timedelta(seconds=-1)),
    "not yet valid": lambda file, ca: issue(file, CLIENTS, ca, starts=DAY, ends=2 * DAY),
    "signed by itself": lambda file, _: issue(file, CLIENTS),
    "signed by a CA of this name": own_authority,
    "signed by a client": signed_by_a_client,
    "for servers": lambda file, ca: issue(file, CLIENTS, ca, for_servers=True),
    "named as the CA": lambda file, _: issue(file, parts(("CN", "test-ca"))),
}


@pytest.mark.parametrize("listener", ["MUTUAL", "OPTIONAL"])
@pytest.mark.parametrize("certificate", CERTIFICATES)
def test_a_certificate_is_refused(
    broker: SecuredBroker, signer: Signer, tmp_path: Path, certificate: str, listener: str
) -> None:
    CERTIFICATES[certificate](tmp_path / "client.pem", signer)
    assert is_refused(broker, listener, str(tmp_path / "client.pem"))


def test_no_certificate_is_refused(broker: SecuredBroker) -> None:
    assert is_refused(broker, "MUTUAL", None)


def test_an_honest_certificate_is_accepted(broker: SecuredBroker, signer: Signer, tmp_path: Path) -> None:
    """Otherwise the certificates above could be refused for another reason."""
    issue(tmp_path / "client.pem", CLIENTS, signer)
    for listener in ("MUTUAL", "OPTIONAL"):
        with broker.peer(listener, str(tmp_path / "client.pem")) as peer:
            assert not peer.ask(3, 9, {"topics": [{"name": "honest"}]}).topics[0].error_code


def user_of(broker: SecuredBroker, certificate: str) -> str | None:
    """The user that the broker takes a certificate for, from the refusal of a change; None if it is closed."""
    with broker.peer("MUTUAL", certificate) as peer:
        peer.send(request(18, 0, {}))
        if peer.receive() is None:
            return None
        topic = {"name": "evil", "num_partitions": 1, "replication_factor": 1}
        answer = peer.ask(19, 5, {"topics": [topic], "timeout": 1_000})
        assert answer.topics[0].error_code == 29, answer
        return str(answer.topics[0].error_message).partition(" may not ")[0]


NAMES: dict[str, tuple[Subject, str | None]] = {
    "the rule applies": (CLIENTS, "User:alice"),
    "a comma": (parts(("CN", "alice,OU=clients")), "User:cert-alice\\,ou=clients"),
    "a comma in the unit": (parts(("OU", "clients,O=x"), ("CN", "alice")), "User:cert-alice,ou=clients\\,o=x"),
    "two names": (parts(("OU", "clients"), ("CN", "admin"), ("CN", "alice")), "User:cert-alice,cn=admin,ou=clients"),
    "a unit in front": (parts(("OU", "clients"), ("CN", "alice"), ("OU", "x")), None),
    "another order": (parts(("CN", "alice"), ("OU", "clients")), None),
    "capitals": (parts(("OU", "clients"), ("CN", "ALICE")), "User:cert-alice,ou=clients"),
    "a super user": (parts(("CN", "admin")), "User:cert-admin"),
    "a super user in capitals": (parts(("CN", "ADMIN")), "User:cert-admin"),
    "a kind of principal": (parts(("CN", "User:admin")), "User:cert-user:admin"),
    "every user": (parts(("CN", "*")), "User:cert-*"),
    "a quote": (parts(("CN", 'al"ice')), 'User:cert-al\\"ice'),
    "a backslash": (parts(("CN", "alice\\"), ("OU", "x")), None),
    "a plus": (parts(("CN", "alice+OU=clients")), "User:cert-alice\\+ou=clients"),
    "two values": ([[("CN", "alice"), ("OU", "clients")]], "User:cert-alice+ou=clients"),
    "a line feed": (parts(("OU", "clients"), ("CN", "alice\nCN=admin")), None),
    "a NUL": (parts(("OU", "clients"), ("CN", "alice\0.evil")), None),
    "a space behind": (parts(("OU", "clients"), ("CN", "alice ")), "User:cert-alice\\ ,ou=clients"),
    "a zero-width space": (parts(("OU", "clients"), ("CN", "alice\u200b")), None),
    "a cyrillic letter": (parts(("OU", "clients"), ("CN", "\u0430lice")), "User:cert-\u0430lice,ou=clients"),
    "right to left": (parts(("CN", "\u202enimda")), None),
    "another kind": (parts(("UID", "alice"), ("E", "alice@example")), None),
    "an unknown kind": (parts(("X", "alice")), None),
    "no name": ([], None),
    "an empty name": (parts(("CN", "")), "User:cert-"),
    "long": (parts(("CN", "a" * 1_200)), None),
    "many parts": (parts(*[("OU", f"unit{number}") for number in range(300)]), None),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_subject_is_no_other_user(broker: SecuredBroker, signer: Signer, tmp_path: Path, name: str) -> None:
    subject, user = NAMES[name]
    issue(tmp_path / "client.pem", subject, signer)
    assert user_of(broker, str(tmp_path / "client.pem")) == user


GARBAGE: dict[str, bytes] = {
    "Kafka": request(18, 0, {}),
    "HTTP": b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "zeros": bytes(1_000),
    "ones": b"\xff" * 1_000,
    "SSL 2": b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + bytes(40),
    "SSL 3": HELLO.replace(b"\x03\x03", b"\x03\x00").replace(b"\x03\x01", b"\x03\x00"),
    "an alert": b"\x15\x03\x03\x00\x02\x02\x28",
    "data": b"\x17\x03\x03\x00\x10" + bytes(16),
    "a heartbeat": b"\x18\x03\x02\x00\x03\x01\x40\x00",
    "a large record": b"\x16\x03\x01\xff\xff" + bytes(65_535),
    "an empty record": b"\x16\x03\x01\x00\x00" * 100,
    "a hello without ciphers": HELLO.replace(b"\x00\x02\xc0\x2f", b"\x00\x02\x00\x00"),
    "a hello that lies about its size": HELLO.replace(b"\x01\x00\x00\x2b", b"\x01\xff\xff\xff") + bytes(40_000),
    "a hello of the server": HELLO.replace(b"\x01\x00\x00\x2b", b"\x02\x00\x00\x2b"),
}


@pytest.mark.parametrize("listener", ["LOGIN", "MUTUAL"])
@pytest.mark.parametrize("data", GARBAGE)
def test_bytes_that_are_no_handshake_close(broker: SecuredBroker, listener: str, data: str) -> None:
    with socket.create_connection(broker.addresses[listener], WAIT_S) as connection:
        connection.sendall(GARBAGE[data])
        assert is_turned_away(connection)


@pytest.mark.parametrize("data", ["a hello", "random"])
def test_tls_to_a_listener_without_tls_closes(broker: SecuredBroker, data: str) -> None:
    with socket.create_connection(broker.addresses["CLEAR"], WAIT_S) as connection:
        connection.sendall(HELLO if data == "a hello" else b"\x7f" + os.urandom(400))
        assert is_turned_away(connection)


def is_turned_away(connection: socket.socket) -> bool:
    """Whether the broker sends a fatal alert of TLS, or closes the connection without an answer."""
    try:
        found = connection.recv(4_096)
    except ConnectionError:
        return True
    return not found or found.startswith(b"\x15")


def test_a_password_without_tls_is_not_read(broker: SecuredBroker) -> None:
    """A client that is configured without TLS gets no handshake of SASL, so it does not send its password."""
    with socket.create_connection(broker.addresses["LOGIN"], WAIT_S) as connection:
        connection.sendall(request(17, 1, {"mechanism": "PLAIN"}))
        assert is_turned_away(connection)


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_an_old_version_is_refused(broker: SecuredBroker, version: str) -> None:
    ended = s_client(broker, version, "-cipher", "ALL:@SECLEVEL=0")
    assert "Cipher is (NONE)" in ended or "Cipher    : 0000" in ended, ended


@pytest.mark.parametrize("cipher", ["aNULL", "eNULL", "EXPORT", "RC4", "DES", "MD5"])
def test_a_weak_cipher_is_refused(broker: SecuredBroker, cipher: str) -> None:
    ended = s_client(broker, "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
    assert "Cipher is (NONE)" in ended or "no cipher match" in ended or "Cipher    : 0000" in ended, ended


def test_renegotiation_is_refused(broker: SecuredBroker) -> None:
    ended = s_client(broker, "-tls1_2", stdin="R\n")
    assert "RENEGOTIATING" in ended
    assert "no renegotiation" in ended.lower(), ended


def s_client(broker: SecuredBroker, *words: str, stdin: str = "") -> str:
    """The output of `openssl s_client`; it ends at the end of its input, or when the broker closes."""
    host, port = broker.addresses["LOGIN"]
    command = ["openssl", "s_client", "-connect", f"{host}:{port}", *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        output, _ = process.communicate(stdin, timeout=WAIT_S)
    return output


def test_handshakes_that_stop_halfway_do_not_keep_others_out(broker: SecuredBroker) -> None:
    with ExitStack() as stack:
        for number in range(HALF_OPEN):
            connection = stack.enter_context(socket.create_connection(broker.addresses["LOGIN"], WAIT_S))
            connection.sendall(HELLO[: number % len(HELLO)])
        began = time.monotonic()
        broker.logged_in("alice", "LOGIN").close()
        assert time.monotonic() - began < WAIT_S / 2


def test_a_hello_in_single_bytes_is_read(broker: SecuredBroker) -> None:
    """A slow client is not refused for being slow, as long as it is done in time."""
    context = broker.tls()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(broker.addresses["LOGIN"], WAIT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        done = False
        while not done:
            try:
                client.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            for byte in outgoing.read():
                connection.sendall(bytes([byte]))
            if not done:
                piece = connection.recv(4_096)
                assert piece, "the broker has closed the connection"
                incoming.write(piece)


def test_a_cut_without_an_end_of_tls_is_no_failure(broker: SecuredBroker) -> None:
    for _ in range(20):
        plain = socket.create_connection(broker.addresses["LOGIN"], WAIT_S)
        client = broker.tls().wrap_socket(plain, server_hostname="localhost")
        client.sendall(request(18, 0, {})[:7])
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
    broker.logged_in("alice", "LOGIN").close()
