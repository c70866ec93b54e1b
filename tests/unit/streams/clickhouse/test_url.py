"""Layouts of servers from URLs."""

from pathlib import Path

import pytest

from tidemill.model.errors import InvalidConfig
from tidemill.streams.clickhouse.url import PARTITION_MAX, parse

DATA = Path("/var/data")


def test_the_embedded_engine_is_in_the_data_directory_by_default() -> None:
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


def test_servers_have_replicas() -> None:
    layout = parse("clickhouse://me:s3cret@one|two:9000,three/shop?ranges=0-4,5-9&cluster=c&takeover=30", DATA)
    assert [[each.name for each in server.candidates] for server in layout.servers] == [
        ["one:8123", "two:9000"],
        ["three:8123"],
    ]
    assert (layout.replicated, layout.takeover_s, layout.ranged) == (True, 30, True)
    assert layout.place == "clickhouse://one:8123|two:9000[0-],three:8123[5-]/shop"
    assert not parse("clickhouse://one,two?cluster=c", DATA).replicated


def test_a_client_certificate_means_https() -> None:
    layout = parse("clickhouse://me@one?cert=/dev/null&key=/dev/null", DATA)
    assert (layout.secure, layout.servers[0].port, layout.cert, layout.key) == (True, 8443, "/dev/null", "/dev/null")


@pytest.mark.parametrize("url", ["clickhous://me:s3cret@one", "http:me:s3cret@one", "me:s3cret@one"])
def test_a_wrong_scheme_does_not_show_the_password(url: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse(url, DATA)
    assert "s3cret" not in str(refused.value)


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
        "clickhouse://one?cert=/no/such/file.pem",
        "clickhouse://one?cert=/dev/null",
        "clickhouse://one?key=/dev/null",
        "clickhouse://one|two/shop",
        "clickhouse://one|/shop?cluster=c",
        "clickhouse://one|two,one?cluster=c",
        "clickhouse://one|one?cluster=c",
        "clickhouse://one|two?cluster=c&takeover=0",
        "clickhouse://one|two?cluster=c&takeover=soon",
        "clickhouse://one|two?cluster=c&takeover=99999999",
        "clickhouse://one?cluster=c&takeover=5",
        "clickhouse://1|2|3|4|5|6|7|8|9?cluster=c",
    ],
)
def test_an_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(InvalidConfig):
        parse(url, DATA)
