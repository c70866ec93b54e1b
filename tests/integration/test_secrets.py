"""No secret is shown: marked secrets are given in every way, and everything that a broker or a command says is read."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.support.certificates import Authority
from tests.support.waiting import eventually

MARK = "m4rk3d"
"""A part of every secret of these tests."""
TIMEOUT_S = 60
ADMIN, WRONG, CLUSTER, KEY = (f"{MARK}-{name}" for name in ("admin", "wrong", "cluster", "key"))


class Watched(NamedTuple):
    """A broker with secrets, and the files of its output."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    address: str
    http: str
    grpc: str
    ca: str

    def output(self) -> str:
        return (self.folder / "out").read_text() + (self.folder / "err").read_text()

    def login(self, password: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, str]:
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": "admin",
            "sasl.password": password,
            "ssl.ca.location": self.ca,
        }


def clean_environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")} | more


def run(*words: str, folder: Path, environ: Mapping[str, str]) -> str:
    """Everything that a command prints."""
    command = [sys.executable, "-m", "tidemill", *words]
    ran = subprocess.run(
        command, cwd=folder, env=clean_environment(**environ), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert "Traceback" not in ran.stderr, ran.stderr
    return f"{ran.stdout}{ran.stderr}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("secrets")
    authority = Authority(folder / "certs")
    pem = Path(authority.issue("/CN=broker", "broker"))
    encrypted = folder / "broker.key"
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", pem, "-out", encrypted, "-passout", f"pass:{KEY}"],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "tidemill.toml").write_text(
        'kafka = "127.0.0.1:0"\ngrpc = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\nlog-level = "debug"\n'
        "[listeners.OUTSIDE]\n"
        'bind = "127.0.0.1:0"\nsecurity = "SASL_SSL"\n'
        f'ssl.certificate.location = "{pem}"\nssl.key.location = "{encrypted}"\nssl.key.password = "{KEY}"\n'
        'sasl.enabled.mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"\n'
        f'[broker]\nssl.key.password = "{KEY}"\ntidemill.http.security = "SASL_PLAINTEXT"\n'
        'tidemill.grpc.security = "SASL_PLAINTEXT"\n'
    )
    (folder / "admin").write_text(ADMIN)
    (folder / "cluster").write_text(CLUSTER)
    files = {"TIDEMILL_ADMIN_PASSWORD_FILE": "admin", "TIDEMILL_CLUSTER_SECRET_FILE": "cluster"}
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemill", "serve"],
            cwd=folder, env=clean_environment(**files), stdout=out, stderr=err,
        )  # fmt: skip
        try:
            ready = "tidemill ready "
            eventually(lambda: ready in (folder / "out").read_text(), "the broker is not ready")
            parts = dict(each.split("=", 1) for each in (folder / "out").read_text().split()[2:])
            kafka = parts["kafka"].rpartition("://")[2]
            yield Watched(process, folder, kafka, f"http://{parts['http']}", parts["grpc"], authority.path)
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def test_a_broker_shows_no_secret(broker: Watched) -> None:
    seen = []
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        admin = AdminClient({**broker.login(ADMIN, mechanism), "log_level": 0})
        resource = ConfigResource(ResourceType.BROKER, "0")
        described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        seen.append(str({name: entry.value for name, entry in described.items()}))
        assert "listener.name.outside.ssl.key.password" in described
        client = broker.folder / "client.properties"
        client.write_text("".join(f"{name}={value}\n" for name, value in broker.login(WRONG, mechanism).items()))
        refused = run("topic", "list", "--client", str(client), folder=broker.folder, environ={})
        assert "rejects user admin" in refused
        seen.append(refused)
    for path in ("/", "/health", "/metrics", "/api/status", "/api/topics", "/missing"):
        for auth in (None, ("admin", ADMIN), ("admin", WRONG)):
            answer = httpx.get(f"{broker.http}{path}", auth=auth, timeout=TIMEOUT_S)
            seen.append(f"{answer.headers} {answer.text}")
    client.write_text("".join(f"{name}={value}\n" for name, value in broker.login(ADMIN).items()))
    (broker.folder / "new").write_text(f"{MARK}-alice")
    add = ("user", "add", "alice", "--password-file", "new", "--client", str(client))
    seen.append(run(*add, folder=broker.folder, environ={}))
    assert "added user alice" in seen[-1]
    for password in (ADMIN, WRONG):
        plain = {**broker.login(password, "PLAIN"), "security.protocol": "SASL_PLAINTEXT"}
        client.write_text("".join(f"{name}={value}\n" for name, value in plain.items()))
        over_grpc = ("timeline", "list", "--address", broker.grpc, "--client", str(client))
        over_http = ("sql", "SELECT 1", "--http", broker.http, "--client", str(client))
        seen += [run(*words, folder=broker.folder, environ={}) for words in (over_grpc, over_http)]
        assert ("error: " in seen[-1], "error: " in seen[-2]) == (password == WRONG, password == WRONG), seen[-2:]
    seen.append(Path(f"/proc/{broker.process.pid}/cmdline").read_text())
    seen.append(broker.output())
    assert "login_failed" in seen[-1]
    assert not [each for each in seen if MARK in each]


def test_no_password_of_a_user_is_on_the_disk(broker: Watched) -> None:
    found = [
        path
        for path in (broker.folder / "data").rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in (ADMIN, WRONG, KEY))
    ]
    assert found == []


LOGIN = f"me:{MARK}%40x"
UNREACHABLE = {
    "coordination": [f"etcd://{LOGIN}@127.0.0.1:1", f"etcds://{LOGIN}@127.0.0.1:1/f?ca=/nowhere"],
    "timelines": [
        f"postgresql://{LOGIN}@127.0.0.1:1/db?sslmode=verify-full",
        f"postgresql://127.0.0.1:1/db?user=me&password={MARK}",
        f"postgresql://{LOGIN}@127.0.0.1:noport/db",
    ],
    "streams": [f"clickhouse://{LOGIN}@127.0.0.1:noport/db", f"clickhouse://{LOGIN}@127.0.0.1:1/db?ranges=x"],
}
INVALID = {
    "coordination": [f"etc://{LOGIN}@h:1", f"etcd://{LOGIN}@h:x", f"etcd://{LOGIN}@h?color=blue", f"{MARK}"],
    "timelines": [f"mysql://{LOGIN}@h:1", f"mysql:{LOGIN}@h"],
    "streams": [f"clickhous://{LOGIN}@h:1", f"clickhouse://{LOGIN}@h?color=blue"],
}


@pytest.mark.parametrize("command", ["serve", "doctor"])
@pytest.mark.parametrize(
    ("setting", "url"),
    [(name, url) for given in (UNREACHABLE, INVALID) for name, urls in given.items() for url in urls],
)
def test_a_wrong_address_of_an_engine_is_reported_without_its_password(
    tmp_path: Path, command: str, setting: str, url: str
) -> None:
    (tmp_path / "url").write_text(url)
    environ = {f"TIDEMILL_{setting.upper()}_FILE": "url"}
    for server in ("KAFKA", "GRPC", "HTTP"):
        environ[f"TIDEMILL_{server}"] = "none"
    said = run(command, folder=tmp_path, environ=environ)
    assert "error: " in said
    assert MARK not in said


def test_a_secret_on_the_command_line_is_warned_about(tmp_path: Path) -> None:
    """Named, and not shown: the command line itself is all that others can see."""
    words = ["serve", "--kafka", "none", "--grpc", "none", "--http", "none", "--data-dir", str(tmp_path / "d")]
    words += ["--cluster-secret", MARK, "--timelines", f"postgresql://{LOGIN}@127.0.0.1:1/db"]
    said = run(*words, "--set", f"ssl.key.password={MARK}", folder=tmp_path, environ={})
    assert '"flags": ["--cluster-secret", "--timelines", "--set ssl.key.password"]' in said
    assert MARK not in said


def test_half_a_secret_is_not_shown_either(tmp_path: Path) -> None:
    """A password with a space that was not quoted."""
    said = run("serve", folder=tmp_path, environ={"TIDEMILL_SET": f"ssl.key.password=a {MARK}"})
    assert "put quotes around" in said
    assert MARK not in said


def test_help_shows_no_secret(tmp_path: Path) -> None:
    environ = {"TIDEMILL_CLUSTER_SECRET": MARK, "TIDEMILL_COORDINATION": f"etcd://{LOGIN}@h", "TIDEMILL_CLIENT": MARK}
    for command in (["serve"], ["user", "add"], ["topic", "list"]):
        assert MARK not in run(*command, "--help", folder=tmp_path, environ=environ)
