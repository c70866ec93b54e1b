"""`tidemill user` at a running broker, in the data directory of a stopped one, and in etcd."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.command_line import CommandLine
from tests.support.document_comparison import differences
from tests.support.etcd import running_etcd
from tests.support.waiting import eventually

from tidemill.testing import Broker

FAILED, WRONG_USE = 1, 2
ADMIN, PASSWORD = "admin", "admin-password"
BOTH = {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}
LISTENER = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"}
SETTINGS = {**LISTENER, "connection.failed.authentication.delay.ms": "0"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True, settings=SETTINGS, admin_password=PASSWORD) as running:
        yield running


@pytest.fixture
def cli(
    broker: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> CommandLine:
    """Commands of the administrator. Other users log in with `as_user`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEMILL_CLIENT", str(login_file(tmp_path, ADMIN, PASSWORD)))
    return CommandLine(broker.bootstrap_servers, capfd, monkeypatch)


@pytest.fixture
def alone(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    """Commands without a broker."""
    monkeypatch.chdir(tmp_path)
    return CommandLine("127.0.0.1:1", capfd, monkeypatch)


def login_file(folder: Path, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Path:
    path = folder / f"{name}.properties"
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in login.items()), "utf-8")
    return path


def as_user(name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> list[str]:
    return ["--client", str(login_file(Path.cwd(), name, password, mechanism))]


def mechanisms_of(cli: CommandLine, name: str) -> dict[str, int]:
    [found] = [
        each["mechanisms"] for each in cli.fine("user", "list", "--json").json()["users"] if each["user"] == name
    ]
    assert isinstance(found, dict)
    return found


def test_a_user_through_a_broker(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("se=cret; x\n")
    assert cli.fine("user", "add", "alice", "--password-file", "pw").lines == ["added user alice"]
    assert mechanisms_of(cli, "alice") == BOTH
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
        cli.fine("topic", "list", *as_user("alice", "se=cret; x", mechanism))
    assert "rejects user alice" in cli.refused(FAILED, "topic", "list", *as_user("alice", "guess"))
    assert "set-password alice" in cli.refused(FAILED, "user", "add", "alice", "--generate")
    assert "--yes" in cli.refused(WRONG_USE, "user", "remove", "alice")
    assert cli.fine("user", "remove", "alice", "--yes").lines == ["removed alice"]
    assert "rejects user alice" in cli.refused(FAILED, "topic", "list", *as_user("alice", "se=cret; x"))
    assert "there is no user alice" in cli.refused(FAILED, "user", "remove", "alice", "--yes")
    assert "there is no user alice" in cli.refused(FAILED, "user", "set-password", "alice", "--generate")


def test_a_new_password_replaces_every_old_one(cli: CommandLine) -> None:
    """Also that of a mechanism that the user no longer has: an old password must not work by another mechanism."""
    made = cli.fine("user", "add", "bob", "--generate", "--iterations", "4096", "--json").json()
    assert made["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert len(made["password"]) == 32
    old, second = as_user("bob", made["password"], "PLAIN"), made["password"]
    cli.fine("topic", "list", *old)
    changed = cli.fine("user", "set-password", "bob", "--generate", "--mechanism", "scram-sha-512")
    second = changed.lines[1].removeprefix("password: ")
    assert mechanisms_of(cli, "bob") == {"SCRAM-SHA-512": 8192}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
        cli.refused(FAILED, "topic", "list", *as_user("bob", made["password"], mechanism))
    cli.fine("topic", "list", *as_user("bob", second, "SCRAM-SHA-512"))
    cli.refused(FAILED, "topic", "list", *as_user("bob", second, "SCRAM-SHA-256"))


def test_changing_the_mechanism_of_a_super_user_keeps_it_one(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "pw").write_text(PASSWORD)
    for old, new in (("SCRAM-SHA-256", "SCRAM-SHA-512"), ("SCRAM-SHA-512", "SCRAM-SHA-256")):
        changed = ("--password-file", "pw", "--mechanism", new, "--client", f"sasl.mechanism={old}")
        cli.fine("user", "set-password", ADMIN, *changed)
        cli.fine("acl", "list", "--client", f"sasl.mechanism={new}")
    assert mechanisms_of(cli, ADMIN) == {"SCRAM-SHA-256": 8192}


def test_an_ordinary_user_changes_no_user(cli: CommandLine) -> None:
    password = cli.fine("user", "add", "carol", "--generate", "--json").json()["password"]
    for command in ("user list", "user add dave --generate", "user set-password admin --generate"):
        refusal = cli.refused(FAILED, *command.split(), *as_user("carol", password))
        assert refusal == "list users: User:carol may not DESCRIBE CLUSTER kafka-cluster"
    assert "dave" not in cli.fine("user", "list").out


def test_acls_that_name_a_removed_user_are_pointed_out(cli: CommandLine) -> None:
    cli.fine("user", "add", "eve", "--generate")
    cli.fine("acl", "grant", "eve", "--consumer", "--topic", "orders", "--group", "g")
    assert cli.fine("user", "remove", "eve", "--yes").err == "3 ACLs name User:eve; see: tidemill acl list eve\n"
    assert "3 ACLs name User:eve" in cli.fine("user", "add", "eve", "--generate").err
    cli.fine("acl", "revoke", "eve", "--all", "--yes")


def test_wrong_uses(cli: CommandLine) -> None:
    assert "super.users" in cli.refused(WRONG_USE, "user", "add", "x", "--super", "--generate")
    assert "super.users" in cli.refused(WRONG_USE, "user", "set-super", "x")
    assert "without a terminal" in cli.refused(WRONG_USE, "user", "add", "x")
    assert "only one" in cli.refused(WRONG_USE, "user", "add", "x", "--generate", "--password", "y")
    assert "MD5" in cli.refused(WRONG_USE, "user", "add", "x", "--generate", "--mechanism", "MD5")
    assert "4096" in cli.refused(WRONG_USE, "user", "add", "x", "--generate", "--iterations", "1")
    assert "cannot be read" in cli.refused(WRONG_USE, "user", "add", "x", "--password-file", "none")
    assert "only one" in cli.refused(WRONG_USE, "user", "list", "--data-dir", "d", "--coordination", "etcd://x")
    assert "etcd://" in cli.refused(WRONG_USE, "user", "list", "--coordination", "http://u:topsecret@x")
    assert "without User:" in cli.refused(WRONG_USE, "user", "add", "User:x", "--generate")
    for name in ("*", "ANONYMOUS"):
        assert "no user can have the name" in cli.refused(FAILED, "user", "add", name, "--generate")
    assert "a user name has" in cli.refused(FAILED, "user", "add", "a\tb", "--generate")
    assert "x" not in [each["user"] for each in cli.fine("user", "list", "--json").json()["users"]]


def test_a_password_on_the_command_line_is_warned_about(cli: CommandLine) -> None:
    done = cli.fine("user", "add", "fay", "--password", "visible")
    assert done.err.startswith("warning: other users of this machine can see")
    assert "visible" not in done.out + done.err
    cli.fine("topic", "list", *as_user("fay", "visible"))


def test_the_first_user_before_the_first_start(alone: CommandLine, tmp_path: Path) -> None:
    made = alone.fine("user", "add", "root", "--super", "--data-dir", "new/data", "--generate", "--json").json()
    alone.fine("user", "add", "alice", "--data-dir", "new/data", "--generate")
    folder = tmp_path / "new" / "data"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.glob("coordination.*"))}
    assert modes == {"data": 0o700, "coordination.journal": 0o600, "coordination.copy": 0o600}
    listed = alone.fine("user", "list", "--data-dir", "new/data", "--json").json()["users"]
    assert [(each["user"], each["super"]) for each in listed] == [("alice", False), ("root", True)]
    assert "exists" in alone.refused(FAILED, "user", "add", "root", "--data-dir", "new/data", "--generate")
    with Broker(process=True, settings=SETTINGS, data_dir=folder) as broker:
        where = ["-b", broker.bootstrap_servers, *as_user("root", made["password"])]
        assert len(alone.fine("user", "list", "--json", *where).json()["users"]) == 2
        alone.fine("acl", "grant", "alice", "--producer", "--topic", "orders", *where)
        reported = alone.refused(FAILED, "user", "add", "late", "--data-dir", "new/data", "--generate")
        assert (
            reported
            == "a broker runs on new/data; stop it first, or change users through it with --bootstrap host:port"
        )
    alone.fine("user", "set-super", "alice", "--data-dir", "new/data")
    alone.fine("user", "set-super", "root", "--off", "--data-dir", "new/data")
    alone.fine("user", "set-password", "alice", "--data-dir", "new/data", "--generate")
    listed = alone.fine("user", "list", "--data-dir", "new/data", "--json").json()["users"]
    assert [(each["user"], each["super"]) for each in listed] == [("alice", True), ("root", False)]
    alone.fine("user", "remove", "root", "--data-dir", "new/data", "--yes")
    assert [
        each["user"] for each in alone.fine("user", "list", "--data-dir", "new/data", "--json").json()["users"]
    ] == ["alice"]


def test_a_directory_that_is_not_of_a_broker_is_left_alone(alone: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    refusal = alone.refused(FAILED, "user", "add", "root", "--data-dir", "photos", "--generate")
    assert refusal == "photos is no data directory: it has cat.jpg; name a new or an empty directory"
    assert "no broker has run there" in alone.refused(FAILED, "user", "list", "--data-dir", "photos")
    assert "no broker has run there" in alone.refused(FAILED, "user", "remove", "x", "--yes", "--data-dir", "nowhere")
    (tmp_path / "member").mkdir()
    (tmp_path / "member" / "node.json").write_text("{}")
    assert "--coordination" in alone.refused(FAILED, "user", "add", "x", "--data-dir", "member", "--generate")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["member", "photos"]
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory of another user")
def test_root_leaves_no_files_in_the_directory_of_another_user(alone: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    os.chown(tmp_path / "data", 65534, 65534)
    refusal = alone.refused(FAILED, "user", "add", "root", "--data-dir", "data", "--generate")
    assert "sudo -u 'nobody' tidemill user" in refusal
    assert list((tmp_path / "data").iterdir()) == []


def test_the_users_of_a_cluster_on_etcd(alone: CommandLine, tmp_path: Path) -> None:
    with running_etcd() as etcd:
        url = etcd.new_folder()
        first = alone.fine("user", "add", "carol", "--coordination", url, "--generate")
        assert "no broker has started with this address of etcd yet" in first.err
        alone.fine("user", "remove", "carol", "--yes", "--coordination", url)
        made = alone.fine("user", "add", "root", "--super", "--coordination", url, "--generate", "--json").json()
        (tmp_path / "etcd.url").write_text(url + "\n")
        listed = alone.fine("user", "list", "--coordination", "etcd.url", "--json").json()["users"]
        assert [(each["user"], each["super"]) for each in listed] == [("root", True)]
        with (
            Broker(process=True, settings=SETTINGS, flags={"coordination": url}) as broker,
            Broker(process=True, settings=SETTINGS, flags={"coordination": url, "node-id": "1"}) as other,
        ):
            root = as_user("root", made["password"])
            alice = alone.fine(
                "user", "add", "alice", "--generate", "--json", "-b", other.bootstrap_servers, *root
            ).json()
            assert "alice" in alone.fine("user", "list", "--coordination", url).out
            assert alone.fine("user", "add", "dave", "--coordination", url, "--generate").err == ""
            login = ["-b", broker.bootstrap_servers, *as_user("alice", alice["password"])]
            eventually(lambda: alone("topic", "list", *login).code == 0, "the user is unknown to the other broker")
            # A user that is made in etcd can log in at once, because brokers follow the change.
            new = alone.fine("user", "add", "bob", "--coordination", url, "--generate", "--json").json()
            alone.fine("topic", "list", "-b", broker.bootstrap_servers, *as_user("bob", new["password"]))


def test_a_password_is_asked_for_twice(tmp_path: Path) -> None:
    """On a terminal, which this test makes: nothing that is typed is shown."""
    add = ["user", "add", "--data-dir", str(tmp_path / "data")]
    assert "added user alice" in typed([*add, "alice"], ["tea", "tea"])
    assert "the two passwords differ" in typed([*add, "bob"], ["tea", "coffee"])
    assert "the password is empty" in typed([*add, "bob"], ["", ""])


def test_a_person_is_warned_about_a_password_among_the_client_settings() -> None:
    words = ["topic", "list", "-b", "127.0.0.1:1", "--client", "security.protocol=SASL_SSL"]
    login = ["--client", "sasl.mechanism=PLAIN", "--client", "sasl.username=ann", "--client", "sasl.password="]
    said = typed([*words, *login[:-1], f"{login[-1]}tea"], [])
    assert "warning: other users of this machine can see sasl.password on the command line; use a file" in said
    assert "warning" not in typed([*words, *login[:-1], login[-1] + "${HOME}"], [])


def typed(words: list[str], answers: list[str]) -> str:
    """The output of a command on a terminal. Each answer is typed after its prompt."""
    command = [sys.executable, "-m", "tidemill", *words]
    program = f"import pty, sys; sys.exit(pty.spawn({command!r}) >> 8)"
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for prompt, answer in zip((b"Password of ", b"The same again: "), answers, strict=False):
            while not shown.rstrip(b" ").rpartition(b"\n")[2].startswith(prompt.strip()) or not shown.endswith(b": "):
                part = os.read(child.stdout.fileno(), 1000)
                assert part, shown
                shown += part
            child.stdin.write(answer.encode() + b"\n")
            child.stdin.flush()
        while part := os.read(child.stdout.fileno(), 1000):
            shown += part
    text = shown.decode()
    assert not any(answer and answer in text for answer in answers), text
    return text


def test_users_acls_and_quotas_are_printed_as_the_api_sends_them(broker: Broker, cli: CommandLine) -> None:
    cli.fine("user", "add", "dora", "--generate", "--iterations", "4096")
    cli.fine("acl", "grant", "dora", "--consumer", "--topic", "orders", "--group", "mailer")
    cli.fine("acl", "grant", "*", "--operation", "describe", "--topic", "public.", "--prefix")
    cli.fine("quota", "set", "--user", "dora", "--producer-byte-rate", "10m")
    cli.fine("quota", "set", "--user", "dora", "--default-client-id", "--request-percentage", "12.5")

    def sent(path: str) -> Any:
        found = httpx.get(f"{broker.http}/api/v1/{path}", auth=(ADMIN, PASSWORD), timeout=30)
        return found.raise_for_status().json()

    assert differences(cli.fine("user", "list", "--json").json(), sent("users"), ["super", "acls"]) == []
    printed, listed = cli.fine("acl", "list", "--json").json(), sent("acls")
    assert listed["total"] >= 4
    for each in (printed, listed):  # they have different orders
        each["acls"].sort(key=lambda row: tuple(row.values()))
    assert differences(printed, listed) == []
    assert differences(cli.fine("quota", "list", "--json").json(), sent("quotas")) == []
    applied = cli.fine("quota", "list", "--applied", "--user", "dora", "--client-id", "app", "--json").json()
    assert {each["value"] for each in applied["quotas"]} == {10 * 1024**2, 12.5}
    assert differences(applied, sent("quotas/applied?user=dora&client_id=app")) == []
    cli.fine("user", "remove", "dora", "--yes")
