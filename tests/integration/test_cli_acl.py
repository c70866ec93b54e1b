"""`tidemill acl` at a running broker: what is granted works, what is revoked does not, and changes are audited."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import CommandLine, Result

from tidemill.client.kafka import acls
from tidemill.testing import Broker
from tidemill.testing.child import Child

FAILED, WRONG_USE = 1, 2
ADMIN, PASSWORD = "admin", "admin-password"
USERS = ("alice", "bob")
COLUMNS = ("permission", "operation", "resource", "name", "pattern", "host")


class Audited:
    """A broker with three users, and what it writes to its log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "password").write_text(PASSWORD)
        self._log = (folder / "log").open("wb")
        settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "auto.create.topics.enable": "false"}
        settings["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256"
        flags = {"data-dir": str(folder / "data"), "grpc": "none", "http": "none"}
        variables = {"TIDEMILL_ADMIN_PASSWORD_FILE": str(folder / "password")}
        self._child = Child(flags, settings, variables, self._log)
        self.address = str(self._child.start()["kafka"])

    def login(self, name: str) -> list[str]:
        path = self._folder / f"{name}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f"sasl.username={name}\nsasl.password={PASSWORD}\n"
        )
        return ["-b", self.address, "--client", str(path)]

    def audit(self, event: str) -> list[dict[str, Any]]:
        lines = (self._folder / "log").read_text().splitlines()
        found = (json.loads(line) for line in lines if '"tidemill.audit"' in line)
        return [each for each in found if each["event"] == event]

    def stop(self) -> None:
        self._child.stop()
        self._log.close()


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    running = Audited(tmp_path_factory.mktemp("acl"))
    try:
        yield running
    finally:
        running.stop()


class Commands(CommandLine):
    """Commands, each as one of the users."""

    audited: Audited

    def by(self, name: str, *words: str) -> Result:
        return self.fine(*words, *self.audited.login(name))

    def denied(self, name: str, *words: str) -> str:
        return self.refused_after_remarks(FAILED, *words, *self.audited.login(name))

    def acls(self, *words: str) -> list[tuple[str, ...]]:
        found = self.by(ADMIN, "acl", "list", "--json", *words).json()["acls"]
        return [tuple(each[column] for column in COLUMNS) for each in found]


@pytest.fixture
def cli(audited: Audited, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    line = Commands("", capfd, monkeypatch)
    monkeypatch.delenv("TIDEMILL_BOOTSTRAP")
    line.audited = audited
    known = {each["user"] for each in line.by(ADMIN, "user", "list", "--json").json()["users"]}
    for name in USERS:
        if name not in known:
            line.by(ADMIN, "user", "add", name, "--password", PASSWORD)
    yield line
    for name in USERS:
        line("acl", "revoke", name, "--all", "--yes", *audited.login(ADMIN))


def test_a_producer_and_a_consumer(cli: Commands) -> None:
    cli.by(ADMIN, "topic", "create", "orders")
    assert "authorization failed" in cli.denied("alice", "produce", "orders", "-m", "tea")
    granted = cli.by(ADMIN, "acl", "grant", "alice", "--producer", "--topic", "orders", "--json").json()
    assert [each["operation"] for each in granted] == ["write", "describe", "create"]
    cli.by("alice", "produce", "orders", "-m", "tea")
    assert "authorization failed" in cli.denied("bob", "consume", "orders", "--group", "mailer", "-n", "1")
    cli.by(ADMIN, "acl", "grant", "bob", "--consumer", "--topic", "orders", "--group", "mailer")
    consume = ("consume", "orders", "--group", "mailer", "--from-beginning", "-n", "1")
    assert cli.by("bob", *consume).lines == ["tea"]
    # Without a group no rights on groups are needed, and nothing is committed.
    cli.by(ADMIN, "acl", "revoke", "bob", "--group", "mailer")
    assert cli.by("bob", "consume", "orders", "--from-beginning", "-n", "1").lines == ["tea"]
    assert "may not DESCRIBE GROUP mailer" in cli.denied("bob", *consume)
    # DENY wins, and revoking ALLOW leaves it.
    cli.by(ADMIN, "acl", "grant", "alice", "--deny", "--operation", "Write", "--topic", "ord", "--prefix")
    assert "authorization failed" in cli.denied("alice", "produce", "orders", "-m", "tea")
    cli.by(ADMIN, "acl", "revoke", "alice", "--topic", "ord", "--prefix", "--deny")
    cli.by("alice", "produce", "orders", "-m", "tea")
    cli.by(ADMIN, "acl", "revoke", "alice", "--topic", "orders", "--producer", "--yes")
    assert "authorization failed" in cli.denied("alice", "produce", "orders", "-m", "tea")
    assert cli.acls("alice") == []


def test_acl_list_shows_the_acls_that_apply_to_a_name(cli: Commands) -> None:
    grant = ("acl", "grant", "alice", "--operation", "read")
    cli.by(ADMIN, *grant, "--topic", "bills", "--timeline", "reminders")
    cli.by(ADMIN, *grant, "--topic", "bill", "--prefix", "--host", "10.0.0.7", "--host", "2001:DB8::7")
    cli.by(ADMIN, *grant, "--topic", "*")
    cli.by(ADMIN, "acl", "grant", "*", "--operation", "describe", "--cluster")
    cli.by(ADMIN, "acl", "grant", "User:bob", "--operation", "two-phase-commit", "--transactional-id", "tx")
    literal = ("allow", "read", "topic", "bills", "literal", "*")
    prefixed = [("allow", "read", "topic", "bill", "prefixed", host) for host in ("10.0.0.7", "2001:db8::7")]
    wildcard = ("allow", "read", "topic", "*", "literal", "*")
    cluster = ("allow", "describe", "cluster", "kafka-cluster", "literal", "*")
    reminders = ("allow", "read", "topic", "reminders", "literal", "*")
    assert cli.acls("alice", "--topic", "bills") == [wildcard, *prefixed, literal]
    assert cli.acls("alice") == [wildcard, *prefixed, literal, reminders, cluster]
    assert cli.acls("--timeline", "reminders") == [wildcard, reminders]
    both = [cluster, ("allow", "two-phase-commit", "transactional-id", "tx", "literal", "*")]
    assert cli.acls("bob") == both
    assert cli.acls("--cluster", "--transactional-id", "tx") == both
    assert cli.by(ADMIN, "acl", "list", "--group", "none").err == "there are no such ACLs\n"
    cli.by(ADMIN, "acl", "revoke", "*", "--cluster")
    only = cli.by(ADMIN, "acl", "revoke", "alice", "--topic", "bill", "--prefix", "--host", "10.0.0.7")
    assert only.lines[-1] == "1 ACL revoked"
    assert cli.acls("alice", "--topic", "bills") == [wildcard, prefixed[1], literal]


def test_grant_points_out_a_user_that_may_be_misspelled(cli: Commands) -> None:
    words = ("--operation", "read", "--topic", "orders")
    misspelled = cli.by(ADMIN, "acl", "grant", "alicia", "alice", "*", *words)
    assert "no user with a password has the name alicia; " in misspelled.err
    assert "tidemill user add alicia" in misspelled.err
    assert not cli.by(ADMIN, "acl", "grant", "alice", "*", *words).err
    assert not cli.by(ADMIN, "acl", "grant", "alicia", "--deny", *words).err
    cli.by(ADMIN, "acl", "revoke", "alicia", "alice", "*", *words, "--yes")
    cli.by(ADMIN, "acl", "revoke", "alicia", "--all", "--yes")


def test_many_are_deleted_only_after_a_confirmation(cli: Commands) -> None:
    cli.by(ADMIN, "acl", "grant", "alice", "bob", "--producer", "--topic", "orders", "--topic", "bills")
    revoke = ("acl", "revoke", "alice", "--all")
    assert cli.by(ADMIN, *revoke, "--dry-run").lines[-1] == "6 ACLs would be revoked"
    refused = cli(*revoke, *cli.audited.login(ADMIN))
    assert (refused.code, refused.err) == (
        WRONG_USE,
        "error: cannot ask for confirmation without a terminal; add --yes to confirm\n",
    )
    assert len(cli.acls("alice")) == 6
    assert len(cli.by(ADMIN, *revoke, "--yes", "--json").json()) == 6
    assert (len(cli.acls("alice")), len(cli.acls("bob"))) == (0, 6)
    assert cli.refused(FAILED, *revoke, "--yes", *cli.audited.login(ADMIN)) == (
        "there is no such ACL; see: tidemill acl list alice"
    )
    dry = cli.by(ADMIN, "acl", "grant", "alice", "--consumer", "--topic", "orders", "--dry-run")
    assert "nothing was changed" in dry.err
    assert "without --group" in dry.err
    assert cli.acls("alice") == []


def test_more_acls_than_one_request_takes(cli: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "PER_REQUEST", 2)
    topics = [word for number in range(5) for word in ("--topic", f"many{number}")]
    assert len(cli.by(ADMIN, "acl", "grant", "alice", "--operation", "read", *topics, "--json").json()) == 5
    assert sorted(each[3] for each in cli.acls("alice")) == [f"many{number}" for number in range(5)]
    assert cli.by(ADMIN, "acl", "revoke", "alice", "--all", "--yes").lines[-1] == "5 ACLs revoked"
    assert cli.acls("alice") == []


def test_changes_and_refusals_are_audited(cli: Commands) -> None:
    cli.by(ADMIN, "acl", "grant", "bob", "--operation", "read", "--topic", "audited")
    cli.by(ADMIN, "acl", "revoke", "bob", "--topic", "audited")
    changes = [each for each in cli.audited.audit("changed") if "audited" in each.get("acl", "")]
    text = "ALLOW READ on LITERAL TOPIC audited to User:bob from *"
    who = {"who": "User:admin", "host": "127.0.0.1", "acl": text}
    assert [{key: each[key] for key in (*who, "what")} for each in changes] == [
        {**who, "what": "acl_created"},
        {**who, "what": "acl_deleted"},
    ]
    assert cli.denied("bob", "acl", "grant", "bob", "--operation", "all", "--cluster") == (
        "error: grant: User:bob may not ALTER CLUSTER kafka-cluster"
    )
    assert cli.denied("bob", "acl", "list") == "error: list ACLs: User:bob may not DESCRIBE CLUSTER kafka-cluster"
    refusals = {
        (each["who"], each["operation"], each["resource_type"]) for each in cli.audited.audit("authorization_denied")
    }
    assert refusals >= {("User:bob", "ALTER", "CLUSTER"), ("User:bob", "DESCRIBE", "CLUSTER")}
    assert cli.acls("bob") == []


def test_a_failed_login_is_audited_with_the_name_that_was_claimed(cli: Commands) -> None:
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        wrong = ["--client", "sasl.password=guess", "--client", f"sasl.mechanism={mechanism}"]
        cli.refused(FAILED, "topic", "list", *cli.audited.login("bob"), *wrong)
    found = {(each["who"], each["host"], each["mechanism"]) for each in cli.audited.audit("login_failed")}
    assert found >= {("bob", "127.0.0.1", "SCRAM-SHA-256"), ("bob", "127.0.0.1", "PLAIN")}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("grant alice --operation read", "name what the ACL is about"),
        ("grant alice --topic x", "give --operation"),
        ("grant alice --topic x --operation fly", "'fly' is not an operation; use one of all, read, write"),
        ("grant alice --group x --operation write", "resource type GROUP has no operation WRITE; use one of ALL, READ"),
        ("grant alice --consumer --group x", "--consumer needs --topic"),
        ("grant alice --producer --group x", "--producer needs --topic"),
        ("grant alice --producer --topic x --deny", "--deny needs --operation"),
        ("grant alice --operation read --topic * --prefix", "leave out --prefix"),
        ("grant alice --operation read --topic x --host example.com", "is not an IP address"),
        ("grant User: --operation read --topic x", "the name of a user is empty"),
        ("revoke alice", "name what to revoke"),
        ("revoke --all", "--all deletes every ACL of the named users"),
        ("revoke alice --all --topic x", "leave out the other options"),
    ],
)
def test_wrong_uses(cli: Commands, words: str, line: str) -> None:
    assert line in cli.refused(WRONG_USE, "acl", *words.split(), *cli.audited.login(ADMIN))


def test_a_broker_without_an_authorizer_says_so(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(flags={"grpc": "none", "http": "none"}) as plain:
        line = CommandLine(plain.bootstrap_servers, capfd, monkeypatch)
        why = "no authorizer is on; set authorizer=acl, or add a listener that authenticates"
        assert line.refused(FAILED, "acl", "list") == f"list ACLs: {why}"
        assert line.refused(FAILED, "acl", "grant", "x", "--operation", "all", "--cluster") == f"grant: {why}"
