"""Queries that work on any broker, and that read little where records are many."""

from typing import NamedTuple


class ExampleQuery(NamedTuple):
    """A query, and what it shows."""

    title: str
    query: str


def example_queries(topic: str) -> tuple[ExampleQuery, ...]:
    """The examples, with the name of a topic. Such names need no escapes."""
    return (
        ExampleQuery(
            "Largest topics",
            """SELECT topic, sum(end_offset - start_offset) AS records, sum(bytes) AS bytes
FROM partitions
GROUP BY topic
ORDER BY bytes DESC
LIMIT 20""",
        ),
        ExampleQuery(
            "Newest records of a topic",
            f"""SELECT timestamp, partition, offset, key, value
FROM messages
WHERE topic = '{topic}' AND timestamp > now() - INTERVAL 1 HOUR
ORDER BY timestamp DESC
LIMIT 50""",  # noqa: S608 -- the user runs it, with the rights of the user
        ),
        ExampleQuery(
            "Records per minute",
            """SELECT toStartOfMinute(timestamp) AS minute, count() AS records
FROM messages
WHERE timestamp > now() - INTERVAL 1 HOUR
GROUP BY minute
ORDER BY minute""",
        ),
        ExampleQuery(
            "Lag of groups",
            """SELECT group_id, topic, sum(lag) AS records, max(lag_seconds) AS seconds
FROM consumer_lag
GROUP BY group_id, topic
ORDER BY records DESC
LIMIT 50""",
        ),
        ExampleQuery(
            "Skew of partitions",
            f"""SELECT partition, end_offset - start_offset AS records, bytes
FROM partitions
WHERE topic = '{topic}'
ORDER BY partition""",  # noqa: S608 -- as above
        ),
        ExampleQuery(
            "Next timed messages",
            """SELECT timeline, id, due_time, status, attempts, bytes
FROM timers
ORDER BY due_time
LIMIT 50""",
        ),
    )
