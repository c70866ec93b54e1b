"""Layouts from URLs, statements from layouts, and the pieces of SQL that are made of data."""

from pathlib import Path

import numpy as np
import pytest

from tidemill.model.errors import InvalidConfig
from tidemill.streams.clickhouse import schema, visit
from tidemill.streams.clickhouse.client import connect
from tidemill.streams.clickhouse.statements import bits, text
from tidemill.streams.clickhouse.url import PARTITION_MAX, parse

DATA = Path("/var/data")


def test_the_embedded_engine_is_in_the_data_directory_unless_told() -> None:
    layout = parse("chdb:", DATA)
    assert (layout.embedded, layout.ranged, layout.fsync) == (True, False, True)
    assert layout.servers[0].path == "/var/data/chdb"
    elsewhere = parse("chdb:/fast/disk?fsync=false", DATA)
    assert (elsewhere.servers[0].path, elsewhere.fsync) == ("/fast/disk", False)


def test_servers_own_ranges() -> None:
    layout = parse("clickhouse://me:p%40ss@one,two:9000/shop?ranges=0-49,50-99&cluster=c", DATA)
    assert [(server.name, server.low, server.high) for server in layout.servers] == [
        ("one:8123", 0, 49),
        ("two:9000", 50, PARTITION_MAX),
    ]
    assert (layout.username, layout.password, layout.database, layout.cluster) == ("me", "p@ss", "shop", "c")
    assert [layout.owner_of(partition) for partition in (0, 49, 50, 99, 100)] == [0, 0, 1, 1, 1]
    assert parse("clickhouse://one,two,three", DATA).owner_of(70) == 1


def test_partitions_of_a_spread_topic_are_dealt_to_as_many_servers_as_there_were_at_its_creation() -> None:
    layout = parse("clickhouse://one,two,three", DATA)
    assert [layout.owner_of(partition, 2) for partition in range(5)] == [0, 1, 0, 1, 0]
    with pytest.raises(InvalidConfig, match="spread over 4 ClickHouse servers, but --streams names 3"):
        layout.owner_of(0, 4)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://one",
        "clickhouse://",
        "clickhouse://one:port",
        "clickhouse://one?fsync=false",
        "clickhouse://one,two?ranges=0-49",
        "clickhouse://one,two?ranges=0-49,51-99",
        "clickhouse://one,two?ranges=1-49,50-99",
        "clickhouse://one,two?ranges=a-b,50-99",
        "chdb:?fsync=perhaps",
        "chdb:?ranges=0-1",
        "clickhouse://one?ca=/no/such/file.pem",
    ],
)
def test_what_is_wrong_with_a_url_is_said(url: str) -> None:
    with pytest.raises(InvalidConfig):
        parse(url, DATA)


def test_one_definition_is_plain_here_and_replicated_there() -> None:
    here = "\n".join(schema.steps(parse("chdb:", DATA), 0))
    assert "ENGINE = MergeTree" in here
    assert "fsync_after_insert = 1" in here
    assert "ON CLUSTER" not in here
    assert "messages_offered" not in here
    there = "\n".join(schema.steps(parse("clickhouse://one,two/shop?cluster=my`c", DATA), 0))
    assert "`shop`.messages ON CLUSTER `my\\`c`" in there
    assert "ReplicatedMergeTree('/clickhouse/tables/{shard}/messages', '{replica}')" in there
    assert (
        "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/consumer_offsets', '{replica}', commit_time)" in there
    )
    assert "MATERIALIZED VIEW IF NOT EXISTS `shop`.messages_accepted ON CLUSTER" in there


def test_a_migration_that_was_made_is_not_made_again() -> None:
    layout = parse("chdb:", DATA)
    assert list(schema.steps(layout, schema.VERSION)) == []
    assert "group_members" in next(iter(schema.steps(layout, 1)))


def test_literals_are_quoted() -> None:
    assert text("it's a \\ 'name'") == "'it\\'s a \\\\ \\'name\\''"


def test_chosen_offsets_are_bits() -> None:
    chosen = bits(100, 117, np.array([99, 100, 103, 116, 117]))
    assert "unhex('090001')" in chosen


def test_what_the_client_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}

    def create(**options: object) -> None:
        given.update(options)

    monkeypatch.setattr("clickhouse_connect.driver.create_client", create)
    layout = parse("clickhouse://me:p%40s%3As@one/shop?secure=true", DATA)
    connect(layout, layout.servers[0], {"a": 1})
    assert {name: given[name] for name in ("host", "port", "username", "password", "secure")} == {
        "host": "one",
        "port": 8443,
        "username": "me",
        "password": "p@s:s",
        "secure": True,
    }
    assert "p@s" not in layout.place + layout.servers[0].name


def test_a_server_that_is_not_there_is_told_without_the_password() -> None:
    (found,) = visit("clickhouse://me:geheim@127.0.0.1:1/shop")
    assert found.problem.startswith("ClickHouse at 127.0.0.1:1 cannot be reached")
    assert "geheim" not in found.problem
