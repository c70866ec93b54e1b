"""`tidemill group`."""

import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.support.command_line import CommandLine

from tidemill.testing import Broker

FAILED, WRONG_USE = 1, 2
WAIT_S = 60


@pytest.fixture
def group(tidemill: CommandLine, request: pytest.FixtureRequest) -> str:
    """A group that has read 3 of the 5 records of a topic of the same name."""
    name = re.sub(r"\W+", ".", request.node.name)
    tidemill.fine("produce", name, stdin=b"1\n2\n3\n4\n5\n")
    tidemill.fine("consume", name, "--group", name, "--max", "3")
    return name


def committed(tidemill: CommandLine, group: str) -> int:
    [row] = tidemill.fine("group", "describe", group, "--json").json()["partitions"]
    return int(row["committed"])


def test_list_and_describe(tidemill: CommandLine, group: str) -> None:
    assert [group, "empty", "classic"] in [line.split() for line in tidemill.fine("group", "list").lines]
    listed = tidemill.fine("group", "list", "--json").json()
    assert (group, "Empty", "classic") in [(each["group"], each["state"], each["type"]) for each in listed["groups"]]
    said, heads, row = tidemill.fine("group", "describe", group).lines
    assert said == f"{group}: empty, 0 members"
    assert heads.split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG_S", "CLIENT", "HOST"]
    assert row.split()[:5] == [group, "0", "3", "5", "2"]
    described = tidemill.fine("group", "describe", group, "--json").json()
    assert (described["members"], described["member_count"]) == ([], 0)
    assert described["partitions"][0]["lag_s"] >= 0


def test_markers_alone_are_no_lag(tidemill: CommandLine, cli_broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": cli_broker.bootstrap_servers, "transactional.id": "marks"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("marked", b"1")
    producer.commit_transaction()
    tidemill.fine("group", "reset-offsets", "reader", "--topic", "marked", "--to-offset", "1")
    [row] = tidemill.fine("group", "describe", "reader", "--json").json()["partitions"]
    assert (row["committed"], row["end"], row["lag"], row["lag_s"]) == (1, 2, 0, 0.0)
    producer.begin_transaction()
    producer.produce("marked", b"2")
    producer.flush()
    [row] = tidemill.fine("group", "describe", "reader", "--json").json()["partitions"]
    assert (row["end"], row["lag"], row["lag_s"]) == (2, 0, 0.0)  # whether the record will count is open
    producer.commit_transaction()
    [row] = tidemill.fine("group", "describe", "reader", "--json").json()["partitions"]
    assert row["lag_s"] >= 0.0


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 5),
        (["--to-offset", "4"], 4),
        (["--to-offset", "99"], 5),
        (["--shift-by", "-2"], 1),
        (["--shift-by", "1"], 4),
        (["--by-duration", "1h"], 0),
        (["--to-datetime", "2020-01-01T00:00:00Z"], 0),
        (["--to-datetime", "now"], 5),
    ],
)
def test_reset_offsets(tidemill: CommandLine, group: str, words: list[str], place: int) -> None:
    planned = tidemill.fine("group", "reset-offsets", group, *words, "--dry-run", "--json").json()
    assert planned == [{"topic": group, "partition": 0, "from": 3, "to": place}]
    assert committed(tidemill, group) == 3
    rows = [line.split() for line in tidemill.fine("group", "reset-offsets", group, *words).lines]
    assert rows == [["TOPIC", "PARTITION", "FROM", "TO"], [group, "0", "3", str(place)]]
    assert committed(tidemill, group) == place


def test_a_new_group_can_be_placed(tidemill: CommandLine, group: str) -> None:
    assert "--topic" in tidemill.refused(FAILED, "group", "reset-offsets", "newcomers", "--to-latest")
    tidemill.fine("group", "reset-offsets", "newcomers", "--to-latest", "--topic", group)
    assert committed(tidemill, "newcomers") == 5


def test_delete(tidemill: CommandLine, group: str) -> None:
    assert "--yes" in tidemill.refused(WRONG_USE, "group", "delete", group)
    tidemill.fine("group", "reset-offsets", "passing", "--topic", group, "--to-latest")
    assert tidemill.fine("group", "delete", "passing", "--yes", "--json").json() == {"deleted": ["passing"]}
    assert tidemill.fine("group", "delete", group, "--yes").out == f"deleted {group}\n"
    assert f"there is no group {group}" in tidemill.refused(FAILED, "group", "describe", group)
    tidemill.refused(FAILED, "group", "delete", group, "--yes")


@pytest.fixture
def _member(cli_broker: Broker, group: str) -> Iterator[None]:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": cli_broker.bootstrap_servers, "group.id": group, "client.id": "the-member"}
    consumer = Consumer(settings)
    consumer.subscribe([group])
    deadline = time.monotonic() + WAIT_S
    while not consumer.assignment() and time.monotonic() < deadline:
        consumer.poll(0.1)
    yield
    consumer.close()


@pytest.mark.usefixtures("_member")
def test_members_are_shown_and_guard_their_offsets(tidemill: CommandLine, group: str) -> None:
    described = tidemill.fine("group", "describe", group, "--json").json()
    assert (described["state"], described["member_count"]) == ("Stable", 1)
    assert described["partitions"][0]["client"] == "the-member"
    tidemill.refused(FAILED, "group", "reset-offsets", group, "--to-earliest")
    tidemill.refused(FAILED, "group", "delete", group, "--yes")
    assert committed(tidemill, group) == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["describe", "missing"], FAILED, "there is no group missing; see: tidemill group list"),
        (["reset-offsets", "missing"], WRONG_USE, "give one of --to-earliest"),
        (["reset-offsets", "missing", "--to-earliest", "--to-latest"], WRONG_USE, "give one of"),
        (["reset-offsets", "missing", "--to-earliest", "--topic", "nothing"], FAILED, "there is no topic nothing"),
        (["reset-offsets", "missing", "--to-offset", "-1"], WRONG_USE, "--to-offset"),
        (["delete"], WRONG_USE, "Missing argument 'GROUP...'"),
    ],
)
def test_refusals_are_one_line(tidemill: CommandLine, words: list[str], code: int, said: str) -> None:
    assert said in tidemill.refused(code, "group", *words)


def test_times_that_are_none(tidemill: CommandLine, group: str) -> None:
    words = ("group", "reset-offsets", group)
    assert "is not a duration" in tidemill.refused(WRONG_USE, *words, "--by-duration", "3x")
    assert "is not a time" in tidemill.refused(WRONG_USE, *words, "--to-datetime", "soon")
