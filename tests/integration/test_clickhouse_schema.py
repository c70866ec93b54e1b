"""The tables on a server: migrated from a kept earlier version, read under the names of Kafka, and printed as DDL.

The server is the HTTP front of the embedded engine (tests/support/clickhouse_front.py).
"""

import asyncio
import json
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.clickhouse import Server, running

from tidemill.cli.main import main
from tidemill.streams.clickhouse import Engine, parse
from tidemill.streams.clickhouse.schema import VERSION

OLD = Path(__file__).parents[1] / "support/clickhouse_schemas/version_8.sql"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("schema"), 1) as (server,):
        yield server


def prepared(url: str) -> None:
    """Do what a broker does at its start."""

    async def prepare() -> None:
        engine = Engine(parse(url, Path()))
        await engine.prepare(0)
        await engine.close()

    asyncio.run(prepare())


def test_a_database_of_version_8_is_migrated_and_keeps_its_rows(server: Server) -> None:
    text = "".join(line for line in OLD.read_text().splitlines(keepends=True) if not line.startswith("--"))
    for statement in filter(None, map(str.strip, text.split(";\n"))):
        server.ask(statement, database="default")
    assert server.ask("SELECT max(version) FROM schema_version") == "8"
    for _ in range(2):  # the second start changes nothing
        prepared(f"clickhouse://{server.name},127.0.0.1:1/tidemill?ranges=0-1,2-99")
    assert server.ask("SELECT max(version), count() FROM schema_version") == f"{VERSION}\t{VERSION}"
    assert server.ask("SELECT groupArray(value) FROM kafka_messages WHERE topic = 'orders'") == "['v0','v1','v2']"
    assert server.ask("SELECT offset, metadata, member_id FROM consumer_offsets") == "2\tnote\tm-1"
    assert server.ask("SELECT lag FROM consumer_lag WHERE group_id = 'readers'") == "1"
    assert server.ask("SELECT members FROM group_activity WHERE group_id = 'readers'") == "1"
    assert server.ask("SELECT count() FROM consumer_groups") == "0"


def test_the_names_of_kafka_are_views_that_can_only_be_read(server: Server) -> None:
    mapping = "SELECT place, server, first_partition, last_partition FROM kafka_partition_mapping"
    assert server.ask(mapping) == f"0\t{server.name}\t0\t1\n1\t127.0.0.1:1\t2\t2147483647"
    assert server.ask("SELECT max(offset) FROM kafka_messages_ingest WHERE topic = 'orders'") == "2", "a minute old"
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.ask("INSERT INTO kafka_messages_ingest (topic, partition, offset) SELECT 'orders', 0, 3")
    assert "not supported by storage View" in refused.value.read().decode()
    assert server.ask("SELECT count() FROM messages") == "3"


@pytest.mark.parametrize(
    "url",
    [
        "clickhouse://one|two,three/shop?cluster=ma`in",
        "clickhouse://one,two,three/shop",
        "clickhouse://one",
        "chdb:",
    ],
)
def test_every_statement_is_parsed(server: Server, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "--ddl", url, "--json"]) == 0
    statements = json.loads(capsys.readouterr().out)
    assert len(statements) > 20
    with_data = [each for each in statements if "MergeTree" in each]
    assert all(("Replicated" in each and "ON CLUSTER `ma\\`in`" in each) == ("cluster" in url) for each in with_data)
    for statement in statements:
        assert server.ask(f"EXPLAIN AST {statement}", database="default")
    with pytest.raises(urllib.error.HTTPError):
        server.ask("EXPLAIN AST CREATE TABLE broken (", database="default")


def test_the_statements_of_a_take_over_are_parsed(server: Server) -> None:
    for statement in (
        "SYSTEM SYNC REPLICA `shop`.messages LIGHTWEIGHT",
        "SYSTEM DROP REPLICA 'one' FROM DATABASE `shop`",
        "SELECT table, replica_name, is_readonly, replica_is_active FROM system.replicas WHERE database = 'shop'",
        "SELECT count() FROM system.mutations WHERE database = 'shop' AND NOT is_done",
    ):
        assert server.ask(f"EXPLAIN AST {statement}", database="default")
    for name in ("insert_quorum", "mutations_sync", "lightweight_deletes_sync", "receive_timeout"):
        assert server.ask(f"SELECT count() FROM system.settings WHERE name = '{name}'", database="default") == "1"


def test_a_url_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "--ddl"]) == 2
    assert "--ddl needs the URL of --streams" in capsys.readouterr().err
    assert main(["sql", "--ddl", "clickhouse://one|two/shop"]) == 1
    assert "add ?cluster=NAME" in capsys.readouterr().err
