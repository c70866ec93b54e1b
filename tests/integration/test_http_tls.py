"""TLS on the HTTP server: versions, certificates that are replaced, and clients that never end their handshake."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from tests.support.certificates import Authority
from tests.support.waiting import eventually

from tidemill.servers.http import server
from tidemill.testing import Broker

WAIT_S = 30


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    settings = {
        "tidemill.http.security": "SSL",
        "listener.name.http.ssl.keystore.location": authority.issue("/CN=broker", "broker"),
    }
    with Broker(settings=settings, flags={"grpc": "none"}) as running:
        yield running


def context(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.path)


def place(broker: Broker) -> tuple[str, int]:
    url = httpx.URL(broker.http)
    return url.host, url.port or 0


def serial(broker: Broker, authority: Authority) -> str:
    """The serial number of the server's certificate."""
    with (
        socket.create_connection(place(broker), WAIT_S) as plain,
        context(authority).wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        return str((wrapped.getpeercert() or {})["serialNumber"])


def is_live(broker: Broker, authority: Authority) -> bool:
    try:
        return httpx.get(f"{broker.http}/health/live", verify=context(authority), timeout=WAIT_S).text == "live\n"
    except httpx.TransportError:
        return False


def test_pages_over_tls(broker: Broker, authority: Authority) -> None:
    assert broker.http.startswith("https://")
    found = httpx.get(f"{broker.http}/health/live", verify=context(authority), timeout=WAIT_S)
    assert found.text == "live\n"
    assert "strict-transport-security" not in found.headers  # it would hold for every server on this machine
    named = httpx.get(f"{broker.http}/", verify=context(authority), headers={"host": "localhost"}, timeout=WAIT_S)
    assert named.status_code == 200


def test_a_client_without_tls_gets_an_error_that_names_https(broker: Broker) -> None:
    """Otherwise a browser shows an empty response, and the user does not know why."""
    found = httpx.get(f"http://{broker.http.removeprefix('https://')}/health/live", timeout=WAIT_S)
    assert found.status_code == 400
    assert found.text == "this server uses TLS; write https:// in front of its address\n"
    assert found.headers["connection"] == "close"


def test_a_kafka_listener_with_tls_answers_no_http(authority: Authority) -> None:
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": authority.issue("/CN=kafka", "kafka")}
    with (
        Broker(settings=settings, flags={"grpc": "none", "http": "none"}) as running,
        pytest.raises(httpx.TransportError),
    ):
        httpx.get(f"http://{running.listener('SSL')}/", timeout=WAIT_S)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_old_versions_of_tls_are_refused(broker: Broker, authority: Authority) -> None:
    old = context(authority)
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(place(broker), WAIT_S) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
        old.wrap_socket(plain, server_hostname="localhost"),
    ):
        pass


def test_a_replaced_certificate_is_used_without_a_restart(broker: Broker, authority: Authority) -> None:
    first = serial(broker, authority)
    authority.issue("/CN=broker", "broker")
    eventually(lambda: serial(broker, authority) != first)


def test_unfinished_handshakes_are_counted_and_cut(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 5)
    monkeypatch.setattr("tidemill.servers.http.connection_acceptor.HANDSHAKE_TIMEOUT_S", 1.0)
    settings = {"tidemill.http.security": "SSL", "ssl.keystore.location": authority.issue("/CN=broker", "held")}
    with Broker(settings=settings, flags={"grpc": "none"}) as broker, ExitStack() as opened:
        silent = [opened.enter_context(socket.create_connection(place(broker), WAIT_S)) for _ in range(5)]
        silent[0].sendall(b"\x16\x03\x01")  # a client hello that never ends
        one_more = opened.enter_context(socket.create_connection(place(broker), WAIT_S))
        assert one_more.recv(1) == b""
        for each in silent:
            each.settimeout(WAIT_S)
            assert each.recv(1) == b""
        eventually(lambda: is_live(broker, authority))  # the server notes a moment later that they are closed


def test_one_address_cannot_keep_others_out(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 5)
    settings = {"tidemill.http.security": "SSL", "ssl.keystore.location": authority.issue("/CN=broker", "fair")}
    with Broker(settings=settings, flags={"grpc": "none"}) as broker, ExitStack() as opened:
        for _ in range(2):
            opened.enter_context(socket.create_connection(place(broker), WAIT_S))
        for _ in range(3):
            plain = opened.enter_context(socket.create_connection(place(broker), WAIT_S))
            opened.enter_context(context(authority).wrap_socket(plain, server_hostname="localhost"))
        transport = httpx.HTTPTransport(verify=context(authority), local_address="127.0.0.2")
        with httpx.Client(transport=transport, timeout=WAIT_S) as honest:
            for _ in range(3):
                found = honest.get(f"{broker.http}/health/live", headers={"connection": "close"})
                assert found.text == "live\n"
