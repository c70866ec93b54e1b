"""What a statement to ClickHouse does, for metrics."""

import pytest

from tidemill.streams.clickhouse.query_kinds import kind_of_insert, kind_of_statement
from tidemill.streams.clickhouse.schema import ENTRY


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("SELECT key FROM messages WHERE topic = 'a' AND partition = 0 AND offset >= 7", "read range all"),
        ("SELECT 1", "read lookup all"),
        ("SELECT max(claim) FROM claims WHERE (topic, partition) IN (('messages', 0))", "read lookup all"),
        ("DELETE FROM messages WHERE topic = 'a'", "delete range all"),
        ("DELETE FROM messages_taken_over WHERE topic = 'a'", "delete lookup all"),
        ("ALTER TABLE messages UPDATE expires_at = now() WHERE topic = 'a'", "update range all"),
        ("INSERT INTO orphans SELECT *, now() FROM messages WHERE topic = 'a'", "create range all"),
        ("KILL QUERY WHERE query_id IN ('a') SYNC", "update lookup all"),
        ("", "update lookup all"),
    ],
)
def test_the_kind_of_a_statement(statement: str, kind: str) -> None:
    assert " ".join(kind_of_statement(statement)) == kind


@pytest.mark.parametrize(
    ("table", "kind"), [("messages", "create range all"), (ENTRY, "create range all"), ("claims", "create lookup all")]
)
def test_the_kind_of_an_insert(table: str, kind: str) -> None:
    assert " ".join(kind_of_insert(table)) == kind
