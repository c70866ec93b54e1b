"""`tidemill topic`."""

import pytest
from tests.support.command_line import CommandLine

FAILED, WRONG_USE = 1, 2


def test_create_list_describe_delete(tidemill: CommandLine) -> None:
    assert tidemill.fine("topic", "create", "life", "-p", "3").out == "created life with 3 partitions\n"
    assert ["life", "3", "1"] in [line.split() for line in tidemill.fine("topic", "list").lines]
    tidemill.fine("produce", "life", "--partition", "1", "-m", "a", "-m", "b")
    described = [line.split() for line in tidemill.fine("topic", "describe", "life").lines]
    assert described[0] == ["PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END", "RECORDS", "BYTES"]
    assert described[2][:-1] == ["1", "0", "0", "0", "0", "2", "2"]
    assert [row[-1] == "0" for row in described[1:]] == [True, False, True]
    assert tidemill.fine("topic", "delete", "life", "--yes").out == "deleted life\n"
    assert "life" not in tidemill.fine("topic", "list").out


def test_json(tidemill: CommandLine) -> None:
    created = tidemill.fine("topic", "create", "machine", "-c", "retention.ms=1000", "--json").json()
    assert created == {"topic": "machine", "partitions": 1, "created": True}
    listed = tidemill.fine("topic", "list", "--json").json()["topics"]
    assert ("machine", 1, 1) in [(each["topic"], each["partitions"], each["replicas"]) for each in listed]
    described = tidemill.fine("topic", "describe", "machine", "--json").json()
    assert described["config"] == {"retention.ms": "1000"}
    assert described["partitions"][0]["records"] == 0


def test_changes_are_printed_for_programs_too(tidemill: CommandLine) -> None:
    tidemill.fine("topic", "create", "changed")
    words = ("--config", "retention.ms=5000", "--unset", "segment.ms", "-p", "2")
    assert tidemill.fine("topic", "alter", "changed", *words, "--json").json() == {
        "topic": "changed",
        "config": {"retention.ms": "5000"},
        "unset": ["segment.ms"],
        "partitions": 2,
    }
    assert tidemill.fine("topic", "delete", "changed", "--yes", "--json").json() == {"deleted": ["changed"]}


def test_an_existing_topic(tidemill: CommandLine) -> None:
    tidemill.fine("topic", "create", "twice", "-p", "2")
    assert "exists already" in tidemill.refused(FAILED, "topic", "create", "twice")
    again = tidemill.fine("topic", "create", "twice", "-p", "5", "--if-not-exists")
    assert again.out == "twice already exists, with 2 partitions\n"
    assert not tidemill.fine("topic", "create", "twice", "--if-not-exists", "--json").json()["created"]


def test_alter(tidemill: CommandLine) -> None:
    tidemill.fine("topic", "create", "changing")
    altered = tidemill.fine("topic", "alter", "changing", "-c", "retention.ms=5", "-c", "cleanup.policy=compact")
    assert altered.out == "altered changing: retention.ms=5, cleanup.policy=compact\n"
    assert tidemill.fine("topic", "describe", "changing").lines[-2:] == ["cleanup.policy=compact", "retention.ms=5"]
    tidemill.fine("topic", "alter", "changing", "--unset", "retention.ms", "--partitions", "4")
    described = tidemill.fine("topic", "describe", "changing", "--json").json()
    assert described["config"] == {"cleanup.policy": "compact"}
    assert len(described["partitions"]) == 4


def test_the_brokers_own_topics_are_shown_when_asked_for(tidemill: CommandLine) -> None:
    tidemill.fine("produce", "read-once", "-m", "x")
    tidemill.fine("consume", "read-once", "--group", "some", "--max", "1")
    assert "__consumer_offsets" not in tidemill.fine("topic", "list").out
    assert "__consumer_offsets" in tidemill.fine("topic", "list", "--internal").out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["describe", "nothing"], FAILED, "there is no topic nothing; create it with: tidemill topic create nothing"),
        (["alter", "nothing", "-c", "retention.ms=1"], FAILED, "there is no topic nothing"),
        (["delete", "nothing", "--yes"], FAILED, "there is no topic nothing"),
        (["create", "a b"], FAILED, "is not a topic name"),
        (["create", "x", "-c", "retention.mss=1"], FAILED, "did you mean retention.ms?"),
        (["create", "x", "-c", "retention.ms=soon"], FAILED, "retention.ms='soon' is not a 64-bit number"),
        (["create", "x", "-c", "retention.ms"], WRONG_USE, "is not name=value"),
        (["create", "x", "-p", "0"], WRONG_USE, "--partitions"),
        (["create", "x", "--replication-factor", "3"], FAILED, "replication factor 3"),
        (["create"], WRONG_USE, "Missing argument 'TOPIC'; see tidemill topic create --help"),
        (["creat"], WRONG_USE, "No such command 'creat'. Did you mean 'create'?"),
        (["list", "--no-such"], WRONG_USE, "--no-such"),
    ],
)
def test_refusals_are_one_line(tidemill: CommandLine, words: list[str], code: int, said: str) -> None:
    assert said in tidemill.refused(code, "topic", *words)


def test_refusals_about_a_topic_that_exists(tidemill: CommandLine) -> None:
    tidemill.fine("topic", "create", "there", "-p", "2")
    assert "nothing to change" in tidemill.refused(WRONG_USE, "topic", "alter", "there")
    assert "give a larger number" in tidemill.refused(FAILED, "topic", "alter", "there", "-p", "1")
    assert "--yes" in tidemill.refused(WRONG_USE, "topic", "delete", "there")
    assert "there" in tidemill.fine("topic", "list").out


@pytest.mark.parametrize(
    "words", [["create", "huge", "-p"], ["create", "huge", "--replication-factor"], ["alter", "huge", "-p"]]
)
def test_numbers_that_the_client_does_not_take(tidemill: CommandLine, words: list[str]) -> None:
    assert "is not in the range" in tidemill.refused(WRONG_USE, "topic", *words, "99999999")
