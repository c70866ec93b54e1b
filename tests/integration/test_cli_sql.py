"""`tidemill sql`: tables for people, JSON, CSV and Parquet for programs, and errors in one line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.support.command_line import CommandLine
from tests.support.postgres import free_port

from tidemill.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True, flags={"streams": "memory:", "grpc": "none"}) as broker:
        yield broker


@pytest.fixture
def tidemill(broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("TIDEMILL_BOOTSTRAP_HTTP", broker.http.removeprefix("http://"))
    return CommandLine(broker.bootstrap_servers, capsys, monkeypatch)


@pytest.fixture(scope="module", autouse=True)
def _records(broker: Broker) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", "tea", key="ada", partition=0)
    producer.produce("orders", b"\x1b[2Jred\n", key=None, partition=0)
    assert producer.flush(60) == 0


def test_a_table(tidemill: CommandLine) -> None:
    found = tidemill.fine("sql", "SELECT key, value, 1234567 AS n, [1, 2] AS list FROM messages ORDER BY offset")
    # What a terminal would obey is shown.
    assert [line.split() for line in found.lines] == [
        ["KEY", "VALUE", "N", "LIST"],
        ["ada", "tea", "1,234,567", "[1,", "2]"],
        ["-", "\\x1b[2Jred\\n", "1,234,567", "[1,", "2]"],
    ]
    assert tidemill.fine("sql", "SELECT 1 WHERE 0").err == "no rows\n"


def test_for_programs(tidemill: CommandLine, tmp_path: Path) -> None:
    sql = "SELECT offset, value FROM messages WHERE key = 'ada'"
    assert tidemill.fine("sql", sql, "--json").json() == [{"offset": 0, "value": "tea"}]
    assert tidemill.fine("sql", "--json", stdin=sql.encode()).json() == [{"offset": 0, "value": "tea"}]
    assert tidemill.fine("sql", "SELECT number, number FROM numbers(1)", "--json").json() == [
        {"number": 0, "number_2": 0}
    ]
    tidemill.fine("sql", sql, "--parquet", str(tmp_path / "a.parquet"))
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == [{"offset": 0, "value": "tea"}]


def test_csv(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    from tidemill.cli.main import main

    assert main(["sql", "SELECT 1 AS one", "--csv", "--http", broker.http.removeprefix("http://")]) == 0
    assert capfdbinary.readouterr().out == b'"one"\n1\n'


def test_the_tables_are_listed_without_a_broker(tidemill: CommandLine) -> None:
    assert "consumer_lag: Lag of groups, in records and in seconds." in tidemill.fine("sql", "--tables").lines
    reported = json.loads(tidemill.fine("sql", "--tables", "--json").out)
    assert {"messages", "timers", "topic_rates"} < {each["table"] for each in reported}


def test_errors_are_one_line(tidemill: CommandLine, cli_broker: Broker) -> None:
    assert tidemill.refused(1, "sql", "TRUNCATE TABLE messages") == (
        "only SELECT is allowed; SQL cannot change anything"
    )
    assert "did you mean messages" in tidemill.refused(1, "sql", "SELECT * FROM message")
    assert "column, alias or lambda parameter nope does not exist" in tidemill.refused(
        1, "sql", "SELECT nope FROM messages"
    )
    assert "Syntax error" in tidemill.refused(1, "sql", "SELECT 1 1")
    assert "there is no query" in tidemill.refused(2, "sql")
    assert "choose one of" in tidemill.refused(2, "sql", "SELECT 1", "--json", "--csv")
    assert "is not host:port" in tidemill.refused(2, "sql", "SELECT 1", "--http", "nowhere")
    address = f"127.0.0.1:{free_port()}"
    reported = tidemill.refused(1, "sql", "SELECT 1", "--http", address)
    assert reported.startswith(f"no broker answers at {address}")
    assert "tidemill serve" in reported
    other_server = cli_broker.grpc
    reported = tidemill.refused(1, "sql", "SELECT 1", "--http", other_server)
    assert reported.startswith(f"no broker answers at {other_server} (it does not use HTTP);")
