"""`tidemill sql` with a broker that requires logins and TLS: the settings of --client are used for HTTP too."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.certificates import Authority
from tests.support.command_line import CommandLine

from tidemill.testing import Broker

ADMIN, PASSWORD = "admin", "pass:word ü"
QUERY = "SELECT DISTINCT topic FROM partitions"
WAIT_S = 30.0


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "ssl.truststore.location": authority.path,
        "ssl.client.auth": "requested",
        "super.users": "User:CN=robot",
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(process=True, settings=settings, flags={"grpc": "none"}, admin_password=PASSWORD) as running:
        admin = AdminClient({**login(authority), "bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT_S)
        yield running


def login(authority: Authority) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority.path,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": ADMIN,
        "sasl.password": PASSWORD,
    }


@pytest.fixture
def tidemill(broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("TIDEMILL_BOOTSTRAP_HTTP", broker.http.removeprefix("https://"))
    return CommandLine(broker.bootstrap_servers, capsys, monkeypatch)


def clients(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--client", f"{name}={value}")]


def test_a_password_over_tls(tidemill: CommandLine, authority: Authority, broker: Broker, tmp_path: Path) -> None:
    assert tidemill.fine("sql", QUERY, "--json", *clients(login(authority))).json() == [{"topic": "orders"}]
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in login(authority).items()))
    found = tidemill.fine("sql", QUERY, "--json", "--http", broker.http, "--client", str(file))
    assert found.json() == [{"topic": "orders"}]


def test_a_certificate(tidemill: CommandLine, authority: Authority) -> None:
    own = {
        "security.protocol": "SSL",
        "ssl.ca.location": authority.path,
        "ssl.certificate.location": authority.issue("/CN=robot", "robot"),
    }
    assert tidemill.fine("sql", QUERY, "--json", *clients(own)).json() == [{"topic": "orders"}]


def test_errors_name_the_missing_option(
    tidemill: CommandLine, authority: Authority, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = broker.http.removeprefix("https://")
    trusted = {"security.protocol": "SSL", "ssl.ca.location": authority.path}
    reported = tidemill.refused(1, "sql", QUERY, *clients(trusted))
    assert reported == f"{at} requires a login; see --client security.protocol, sasl.username and sasl.password"
    reported = tidemill.refused(1, "sql", QUERY, *clients({**login(authority), "sasl.password": "wrong"}))
    assert reported == f"{at} rejects user admin: the user or the password is wrong"
    reported = tidemill.refused(1, "sql", QUERY, "--http", broker.http)
    assert "set ssl.ca.location to the CA that signed it, see --client" in reported
    reported = tidemill.refused(1, "sql", QUERY)
    assert reported == f"{at} uses TLS; write https://{at}"
    reported = tidemill.refused(2, "sql", QUERY, "--http", f"http://{at}", *clients(login(authority)))
    assert "uses no TLS, but security.protocol=SASL_SSL does" in reported
    assert "is not host:port" in tidemill.refused(2, "sql", QUERY, "--http", f"ftp://{at}")
    reported = tidemill.refused(2, "sql", QUERY, *clients({**login(authority), "ssl.ca.location": "/no/such/ca.pem"}))
    assert "/no/such/ca.pem" in reported


def test_a_server_without_tls(cli_broker: Broker, tidemill: CommandLine, authority: Authority) -> None:
    reported = tidemill.refused(
        1, "sql", QUERY, "--http", cli_broker.http.replace("http://", "https://"), *clients(login(authority))
    )
    assert "the TLS handshake with" in reported
    assert "check that it uses TLS" in reported
