"""Table definitions and migrations."""

from pathlib import Path

from tidemill.streams.clickhouse import schema
from tidemill.streams.clickhouse.url import parse

DATA = Path("/var/data")


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
