"""SQL in the JSON API: the shape of results, limits, formats, rights, and a read-only console."""

import csv
import io
import json
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.servers.http.core.example_queries import example_queries
from tidemill.testing import Broker

WAIT_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(flags={"console-readonly": "true"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(5):
            producer.produce("orders", f"=cmd|{number}", key=f"key {number}")
        assert producer.flush(WAIT_S) == 0
        yield running


def post(broker: Broker, query: str, **fields: object) -> httpx.Response:
    return httpx.post(f"{broker.http}/api/v1/sql", json={"query": query, **fields}, timeout=WAIT_S)


def test_a_result_has_columns_rows_and_what_was_read(broker: Broker) -> None:
    found = post(broker, "SELECT key, offset FROM messages ORDER BY offset LIMIT 2").json()
    assert found["columns"] == [{"name": "key", "type": "Nullable(String)"}, {"name": "offset", "type": "Int64"}]
    assert found["rows"] == [["key 0", 0], ["key 1", 1]]
    assert (found["row_count"], found["truncated"]) == (2, False)
    assert found["rows_read"] == 5
    assert found["elapsed_s"] > 0


def test_a_limit_cuts_the_result_and_says_so(broker: Broker) -> None:
    query = "SELECT offset FROM messages ORDER BY offset DESC"
    found = post(broker, query, limit=2).json()
    assert (found["rows"], found["truncated"]) == ([[4], [3]], True)
    assert not post(broker, query, limit=5).json()["truncated"]
    # A limit holds for its own query only.
    assert post(broker, query).json()["row_count"] == 5
    union = "SELECT number FROM numbers(3) UNION ALL SELECT number FROM numbers(3)"
    assert post(broker, union, limit=4).json()["row_count"] == 4
    lines = post(broker, query, limit=2, format="jsonl").text.splitlines()
    assert [json.loads(line) for line in lines] == [{"offset": 4}, {"offset": 3}]
    assert post(broker, query, limit=0).status_code == 400


def test_large_integers_can_be_text(broker: Broker) -> None:
    query = "SELECT toUInt64(18446744073709551615), toUInt8(1)"
    assert post(broker, query, exact_integers=True).json()["rows"] == [["18446744073709551615", 1]]
    assert post(broker, query).json()["rows"] == [[18446744073709551615, 1]]


def test_csv_is_exact_and_safe_for_spreadsheets_when_asked(broker: Broker) -> None:
    query = "SELECT value, -offset AS n FROM messages WHERE offset = 1"
    exact = post(broker, query, format="csv")
    assert exact.headers["content-type"].startswith("text/csv")
    assert exact.headers["content-disposition"] == 'attachment; filename="result.csv"'
    assert list(csv.reader(io.StringIO(exact.text))) == [["value", "n"], ["=cmd|1", "-1"]]
    guarded = post(broker, query, format="csv", guard_formulas=True)
    assert list(csv.reader(io.StringIO(guarded.text))) == [["value", "n"], ["'=cmd|1", "-1"]]


def test_an_error_names_the_position_in_the_text_as_it_was_sent(broker: Broker) -> None:
    answer = post(broker, "\n\n  SELECT 1 1")
    assert answer.status_code == 400
    assert "(line 3, col 12)" in answer.json()["error"]
    assert "\n" not in answer.json()["error"]
    assert post(broker, " ;").json() == {"error": "the query is empty; try: SELECT * FROM partitions"}


def test_tables_are_listed_with_columns_and_words(broker: Broker) -> None:
    found = httpx.get(f"{broker.http}/api/v1/sql/tables", timeout=WAIT_S).json()
    assert found["problem"] is None
    tables = {table["table"]: table for table in found["tables"]}
    assert {"name": "key", "type": "Nullable(String)", "doc": "Key, as bytes."} in tables["messages"]["columns"]
    for table in tables.values():
        assert table["doc"].endswith(".")
        assert all(column["doc"].endswith(".") for column in table["columns"])


def test_the_page_shows_the_query_of_a_link_as_text(broker: Broker) -> None:
    query = "SELECT '</textarea><script>alert(1)</script>'"
    page = httpx.get(f"{broker.http}/sql", params={"query": query}, timeout=WAIT_S)
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "&lt;/textarea&gt;&lt;script&gt;alert(1)" in page.text


def test_examples_run(broker: Broker) -> None:
    for topic in ("orders", "missing"):
        for each in example_queries(topic):
            answer = post(broker, each.query)
            assert answer.status_code == 200, (each.title, answer.text)
