"""Passwords and secrets never appear: not in logs, answers, metrics, pages, files, or in what the system shows."""

import base64
import io
import json
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.attacked import ROOT
from tests.hostile.frames import request
from tests.hostile.logins import SASL_AUTHENTICATE, SASL_HANDSHAKE, Scram, authenticate, bearer, handshake, plain
from tests.hostile.secured import AUDIENCE, ISSUER, SecuredBroker, secret, secured_broker

from tidemill.app.logs import _pretty

WAIT_S = 30.0
SERVERS = {"grpc": "127.0.0.1:0", "http": "127.0.0.1:0", "log-level": "debug"}
PLAINTEXT = {"tidemill.http.security": "SASL_PLAINTEXT", "tidemill.grpc.security": "SASL_PLAINTEXT"}
PATHS = ["/", "/metrics", "/health", "/health/live", "/api/status", "/api/topics", "/api/timelines", "/login", "/none"]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    """A broker that logs everything. What it has logged is searched when it stops."""
    with secured_broker(PLAINTEXT, SERVERS) as started:
        yield started


def test_the_search_finds_a_secret(broker: SecuredBroker) -> None:
    """Otherwise the other tests would prove nothing."""
    password = broker.passwords["alice"]
    for text in (f"x{password}y", base64.b64encode(plain("alice", password)).decode(), f"a{password}".encode()):
        assert broker.leaks(text) == ["alice"]
    for before in (b"", b"1", b"12", b"123"):
        assert broker.leaks(base64.b64encode(before + password.encode() + b"789")) == ["alice"]
    assert broker.leaks(secret("alice")) == []


def test_settings_are_described_without_secrets(broker: SecuredBroker) -> None:
    with broker.logged_in("admin") as peer:
        for name in ("", "0"):
            asked = {"resource_type": 4, "resource_name": name, "configuration_keys": None}
            answer = peer.ask(32, 4, {"resources": [asked], "include_synonyms": True, "include_documentation": True})
            assert broker.leaks(str(answer)) == []
            if name:
                found = {each.name: each for each in answer.results[0].configs}
                assert found["ssl.key.password"].is_sensitive
                assert found["ssl.key.password"].value is None


@pytest.mark.parametrize("key", ["ssl.key.password", "sasl.jaas.config", "listener.name.login.ssl.key.password"])
def test_a_secret_cannot_be_read_by_its_name(broker: SecuredBroker, key: str) -> None:
    with broker.logged_in("admin") as peer:
        asked = {"resource_type": 4, "resource_name": "0", "configuration_keys": [key]}
        answer = peer.ask(32, 4, {"resources": [asked], "include_synonyms": True})
    assert all(each.value is None for each in answer.results[0].configs)


def test_users_are_described_without_secrets(broker: SecuredBroker) -> None:
    with broker.logged_in("admin") as peer:
        answer = str(peer.ask(50, 0, {"users": None}))
    assert broker.leaks(answer) == []
    assert "salt" not in answer
    assert "key" not in answer


MISTAKES: dict[str, tuple[str, Any]] = {
    "wrong password": ("PLAIN", lambda password: plain("mallory", password)),
    "acts as another": ("PLAIN", lambda password: plain("alice", password, "admin")),
    "no separators": ("PLAIN", lambda password: b"alice" + password.encode()),
    "four parts": ("PLAIN", lambda password: plain("alice", password) + b"\0" + password.encode()),
    "too long": ("PLAIN", lambda password: plain("alice", password * 200)),
    "not UTF-8": ("PLAIN", lambda password: plain("alice", password) + b"\xff"),
    "to SCRAM": ("SCRAM-SHA-256", lambda password: plain("alice", password)),
    "as an extension": ("SCRAM-SHA-256", lambda password: f"n,,n=alice,r=abc,{password}".encode()),
    "to OAUTHBEARER": ("OAUTHBEARER", lambda password: plain("alice", password)),
    "as a token": ("OAUTHBEARER", bearer),
    "as an algorithm": (
        "OAUTHBEARER",
        lambda password: bearer(
            base64.urlsafe_b64encode(json.dumps({"alg": password}).encode()).decode().rstrip("=") + ".e30.x"
        ),
    ),
    "as a mechanism": ("", lambda _: b""),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_login_does_not_show_its_password(broker: SecuredBroker, mistake: str) -> None:
    mechanism, make = MISTAKES[mistake]
    password = broker.passwords["alice"]
    with broker.peer() as peer:
        said = str(handshake(peer, mechanism or password))
        if mechanism:
            said += str(authenticate(peer, make(password)))
    assert broker.leaks(said) == []
    assert broker.leaks(broker.log_text()) == []


def test_a_request_of_a_login_that_is_cut_does_not_show_its_password(broker: SecuredBroker) -> None:
    whole = request(SASL_AUTHENTICATE, 2, {"auth_bytes": plain("alice", broker.passwords["alice"])})
    for altered in (whole[:-5] + b"\xff\xff\xff\xff\xff", whole[:14] + b"\xff" + whole[15:]):
        with broker.peer() as peer:
            peer.send(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
            assert peer.receive() is not None
            peer.send(altered)
            answer = peer.receive()
        assert broker.leaks(answer or b"") == []
    assert broker.leaks(broker.log_text()) == []


def test_a_new_password_does_not_appear(broker: SecuredBroker) -> None:
    broker.add_user("heidi")
    broker.logged_in("heidi", mechanism="PLAIN").close()
    refused = {
        "name": "ivan",
        "mechanism": 9,
        "iterations": 1,
        "salt": b"s",
        "salted_password": broker.passwords["heidi"].encode(),
    }
    with broker.logged_in("admin") as peer:
        answer = peer.ask(51, 0, {"deletions": [], "upsertions": [refused]})
    assert answer.results[0].error_code
    assert broker.leaks(str(answer)) == []
    assert broker.leaks(broker.log_text()) == []


def test_a_token_does_not_appear(broker: SecuredBroker) -> None:
    right = {"iss": ISSUER, "aud": AUDIENCE}
    for name, token in (
        ("right", broker.issuer.token("alice", **right)),
        ("expired", broker.issuer.token("alice", **right, exp=1)),
    ):
        broker.passwords[f"{name} token"] = token
        with broker.peer() as peer:
            handshake(peer, "OAUTHBEARER")
            said = str(authenticate(peer, bearer(token)))
        assert broker.leaks(said) == []
    assert broker.leaks(broker.log_text()) == []


def test_a_proof_does_not_appear(broker: SecuredBroker) -> None:
    exchange = Scram("alice", broker.passwords["alice"])
    with broker.peer() as peer:
        handshake(peer, exchange.mechanism)
        final = exchange.final(authenticate(peer, exchange.first()).auth_bytes)
        authenticate(peer, final)
    assert final.rpartition(b"p=")[2].decode() not in broker.log_text()


def http(broker: SecuredBroker, path: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    """The whole answer to a request over HTTP."""
    head = "".join(
        f"{each}\r\n" for each in (f"{method} {path} HTTP/1.1", "host: localhost", "connection: close", *headers)
    )
    with socket.create_connection(broker.addresses["http"], WAIT_S) as connection:
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        found = b""
        while piece := connection.recv(65_536):
            found += piece
    return found


def basic(name: str, password: str) -> str:
    """The header of a login."""
    return "authorization: Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.mark.parametrize("path", PATHS)
def test_no_page_shows_a_secret(broker: SecuredBroker, path: str) -> None:
    for login in ((), (basic("admin", broker.passwords["admin"]),), (basic("admin", broker.passwords["alice"]),)):
        assert broker.leaks(http(broker, path, *login)) == []
    assert broker.leaks(broker.log_text()) == []


@pytest.mark.parametrize("where", ["path", "query", "host", "cookie", "header", "form", "basic as a user"])
def test_a_secret_in_the_wrong_place_is_not_repeated(broker: SecuredBroker, where: str) -> None:
    """A page that repeats a password could be kept by a browser or a proxy, and logs are kept for long."""
    password = broker.passwords["alice"]
    form = f"name=alice&password={password}".encode()
    kind = "content-type: application/x-www-form-urlencoded"
    answers = {
        "path": lambda: http(broker, f"/login?password={password}"),
        "query": lambda: http(broker, f"/api/topics?user=alice&password={password}"),
        "host": lambda: http(broker, "/", "x-password: " + password),
        "cookie": lambda: http(broker, "/", f"cookie: session={password}; tidemill={password}"),
        "header": lambda: http(broker, "/", f"authorization: {password}"),
        "form": lambda: http(broker, "/login", kind, method="POST", body=form),
        "basic as a user": lambda: http(broker, "/", "authorization: Basic " + password),
    }
    assert broker.leaks(answers[where]()) == []
    assert broker.leaks(broker.log_text()) == []


def test_the_system_shows_no_secret(broker: SecuredBroker) -> None:
    """What other users of the machine see: the words of the command. And what a child process would inherit."""
    process = broker.process
    for each in (process, *process.children(recursive=True)):
        assert broker.leaks(" ".join(each.cmdline())) == []
        assert broker.leaks(str(each.environ())) == []


def test_files_have_no_secret_and_are_private(broker: SecuredBroker) -> None:
    folder = broker.log_file.parent / "data"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert broker.leaks(path.read_bytes()) == [], path
    for path in (folder, *folder.glob("coordination*")):
        assert not stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO), path


@pytest.mark.parametrize("setting", ["ssl.key.password", "listener.name.tls.ssl.key.password"])
def test_a_start_that_fails_shows_no_secret(tmp_path: Path, setting: str) -> None:
    password = secret("start")
    (tmp_path / "set").write_text(f"{setting}={password}")
    (tmp_path / "broker.pem").write_text("not a certificate")
    command = [
        sys.executable,
        "-m",
        "tidemill",
        "serve",
        "--data-dir",
        str(tmp_path / "data"),
        "--http",
        "none",
        "--grpc",
        "none",
    ]
    listeners = ["listeners=TLS://127.0.0.1:0", "listener.security.protocol.map=TLS:SSL"]
    for each in (*listeners, f"ssl.keystore.location={tmp_path / 'broker.pem'}"):
        command += ["--set", each]
    variables = {"PATH": "/usr/bin:/bin", "TIDEMILL_SET_FILE": str(tmp_path / "set"), "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode in {1, 2}
    assert password not in ended.stdout + ended.stderr


def test_a_secret_file_that_is_wrong_is_not_shown(tmp_path: Path) -> None:
    password = secret("file")
    (tmp_path / "password").write_bytes(password.encode() + b"\xff")
    (tmp_path / "set").write_text(f"ssl.key.pasword={password}")
    for variable, file in (("TIDEMILL_ADMIN_PASSWORD_FILE", "password"), ("TIDEMILL_SET_FILE", "set")):
        ended = subprocess.run(
            [sys.executable, "-m", "tidemill", "serve", "--data-dir", str(tmp_path / "data")],
            env={"PATH": "/usr/bin:/bin", variable: str(tmp_path / file), "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert ended.returncode in {1, 2}
        assert password not in ended.stdout + ended.stderr


def test_a_traceback_on_a_terminal_has_no_variables() -> None:
    text = io.StringIO()
    password = secret("variable")
    try:
        _fail(password)
    except ValueError as error:
        _pretty(text, (type(error), error, error.__traceback__))
    assert "ValueError" in text.getvalue()
    assert password not in text.getvalue()


def _fail(password: str) -> None:
    message = plain("alice", password)
    raise ValueError(f"{len(message)} bytes")


def test_the_log_is_searched(broker: SecuredBroker) -> None:
    """The log has lines of every kind: logins that were right, wrong, and changes."""
    events = {json.loads(line)["event"] for line in broker.log_text().splitlines() if line.startswith("{")}
    assert {"login_succeeded", "login_failed", "changed", "token_rejected"} <= events
