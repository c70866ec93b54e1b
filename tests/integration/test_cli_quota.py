"""`tidemill quota` at a running broker."""

from collections.abc import Iterator

import pytest
from tests.support.command_line import CommandLine

from tidemill.testing import Broker

FAILED, WRONG_USE = 1, 2


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(flags={"grpc": "none", "http": "none"}) as running:
        yield running


@pytest.fixture
def cli(broker: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(broker.bootstrap_servers, capfd, monkeypatch)


def test_a_quota_is_set_listed_and_removed(cli: CommandLine) -> None:
    reported = cli.fine("quota", "set", "--user", "ann", "--producer-byte-rate", "10m", "--request-percentage", "12.5")
    assert reported.lines == ["user ann: producer_byte_rate=10485760", "user ann: request_percentage=12.5"]
    cli.fine("quota", "set", "--user", "ann", "--default-client-id", "--consumer-byte-rate", "512k")
    table = cli.fine("quota", "list").lines
    assert table[0].startswith("FOR ")
    assert "user ann, default client-id  consumer_byte_rate  524,288" in table
    assert cli.fine("quota", "list", "--user", "ann", "--json").json()["entities"] == [
        {"entity": {"user": "ann"}, "quotas": {"producer_byte_rate": 10485760.0, "request_percentage": 12.5}},
        {"entity": {"user": "ann", "client-id": None}, "quotas": {"consumer_byte_rate": 524288.0}},
    ]
    assert cli.fine("quota", "list", "--user", "bob").err == "there are no such quotas\n"
    reported = cli.fine("quota", "remove", "--user", "ann", "--quota", "request-percentage")
    assert reported.lines == ["removed request_percentage of user ann"]
    reported = cli.fine("quota", "remove", "--user", "ann", "--json")
    assert reported.json() == {"entity": {"user": "ann"}, "removed": {"producer_byte_rate": 10485760.0}}
    cli.fine("quota", "remove", "--default-client-id", "--user", "ann")
    assert cli.fine("quota", "list", "--json").json() == {"entities": [], "total": 0}
    assert cli.fine("quota", "list").err == "there are no quotas yet\n"


def test_the_quotas_that_apply_to_a_client(cli: CommandLine) -> None:
    cli.fine("quota", "set", "--default-client-id", "--producer-byte-rate", "1k", "--consumer-byte-rate", "2k")
    cli.fine("quota", "set", "--user", "ann", "--producer-byte-rate", "3k")
    cli.fine("quota", "set", "--default-ip", "--connection-creation-rate", "20")
    try:
        rows = cli.fine("quota", "list", "--applied", "--user", "ann", "--client-id", "app", "--json").json()["quotas"]
        assert rows == [
            {"quota": "producer_byte_rate", "value": 3072, "entity": {"user": "ann"}},
            {"quota": "consumer_byte_rate", "value": 2048, "entity": {"client-id": None}},
        ]
        table = cli.fine("quota", "list", "--applied", "--user", "ann", "--client-id", "app").lines
        assert [line.split(maxsplit=2)[1:] for line in table[1:]] == [
            ["3,072", "user ann"],
            ["2,048", "default client-id"],
        ]
        rows = cli.fine("quota", "list", "--applied", "--ip", "10.0.0.7", "--json").json()["quotas"]
        assert rows == [{"quota": "connection_creation_rate", "value": 20, "entity": {"ip": None}}]
    finally:
        for words in (("--default-client-id",), ("--user", "ann"), ("--default-ip",)):
            cli.fine("quota", "remove", *words)
    assert cli.fine("quota", "list", "--applied", "--user", "ann").err == "no quota applies to user ann\n"


def test_a_check_changes_nothing(cli: CommandLine) -> None:
    reported = cli.fine("quota", "set", "--client-id", "app", "--producer-byte-rate", "1", "--dry-run")
    assert reported.err == "nothing was changed; leave out --dry-run to set the quotas\n"
    assert cli.fine("quota", "list", "--json").json() == {"entities": [], "total": 0}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["set", "--user", "ann"], "give at least one quota"),
        (["set", "--producer-byte-rate", "1k"], "name whom the quota is for"),
        (["set", "--user", "ann", "--default-user", "--producer-byte-rate", "1k"], "either --user or --default-user"),
        (["set", "--user", "", "--producer-byte-rate", "1k"], "empty user"),
        (["set", "--user", "ann", "--producer-byte-rate", "-5"], "not a size above 0"),
        (["set", "--user", "ann", "--request-percentage", "0"], "greater than 0"),
        (["set", "--user", "ann", "--request-percentage", "nan"], "greater than 0"),
        (["set", "--user", "ann", "--ip", "10.0.0.1", "--producer-byte-rate", "1k"], "cannot name a user"),
        (["set", "--ip", "10.0.0.1", "--producer-byte-rate", "1k"], "use connection_creation_rate"),
        (["set", "--ip", "home", "--connection-creation-rate", "1"], "is not an IP address"),
        (["set", "--user", "ann", "--connection-creation-rate", "1"], "there is no quota"),
        (["list", "--applied"], "--applied needs the names"),
        (["remove"], "name whom the quota is for"),
    ],
)
def test_wrong_use(cli: CommandLine, words: list[str], reason: str) -> None:
    assert reason in cli.refused(WRONG_USE, "quota", *words)


def test_failures_name_the_next_step(cli: CommandLine) -> None:
    reported = cli.refused(FAILED, "quota", "remove", "--user", "unknown")
    assert reported == "user unknown has no quota; see: tidemill quota list"
    cli.fine("quota", "set", "--user", "ann", "--producer-byte-rate", "1k")
    reported = cli.refused(FAILED, "quota", "remove", "--user", "ann", "--quota", "consumer_byte_rate")
    assert reported == "user ann has no quota consumer_byte_rate; see: tidemill quota list"
    cli.fine("quota", "remove", "--user", "ann")
    reported = cli.refused(FAILED, "quota", "list", "-b", "127.0.0.1:1")
    assert "start one with: tidemill serve" in reported
