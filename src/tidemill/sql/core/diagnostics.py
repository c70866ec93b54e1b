"""Queries that find common problems of groups and topics, for `tidemill sql --diagnose`.

They use the tables of the catalog only, so they work on every storage, and a client gets the rows that its ACLs allow.
"""

from typing import NamedTuple

MINUTES_MAX = 100_000


class Diagnosis(NamedTuple):
    """A query that returns a row for each problem, and what to do about one.

    `minutes` is the default of `{minutes}` in the query; 0 if the query has no time.
    """

    name: str
    doc: str
    advice: str
    query: str
    minutes: int = 0

    def sql(self, minutes: int | None = None) -> str:
        """Return the query."""
        return self.query.format(minutes=self.minutes if minutes is None else minutes)


DIAGNOSES: dict[str, Diagnosis] = {
    each.name: each
    for each in (
        Diagnosis(
            "lag",
            "Partitions whose oldest unread record is old, or with 10,000 unread offsets.",
            "add members to the group, up to the number of partitions, or make its handler faster",
            """SELECT group_id, topic, partition, lag, round(lag_seconds) AS lag_seconds,
    committed_offset, latest_offset
FROM consumer_lag
WHERE lag > 0 AND (lag_seconds >= {minutes} * 60 OR lag >= 10000)
ORDER BY lag DESC, group_id, topic, partition
LIMIT 100""",
            1,
        ),
        Diagnosis(
            "stuck",
            "Partitions with unread records whose group has not committed for a while.",
            "without members: start a consumer; with members: see its logs for a record that it cannot handle",
            """SELECT l.group_id AS group_id, l.topic AS topic, l.partition AS partition, l.lag AS lag,
    l.commit_time AS last_commit, g.state AS state, g.members AS members
FROM consumer_lag AS l LEFT JOIN consumer_groups AS g ON g.group_id = l.group_id
WHERE l.lag > 0 AND l.lag_seconds >= {minutes} * 60 AND l.commit_time <= now64(3) - INTERVAL {minutes} MINUTE
ORDER BY last_commit, group_id, topic, partition
LIMIT 100""",
            5,
        ),
        Diagnosis(
            "skew",
            "Topics from 1 MiB on whose largest partition has more than twice the bytes of the others' average.",
            "use a key with more values, or none; a new number of partitions moves no record",
            """SELECT topic, count() AS partitions, sum(bytes) AS total_bytes,
    argMax(partition, bytes) AS largest_partition, max(bytes) AS largest_bytes,
    round((sum(bytes) - max(bytes)) / (count() - 1)) AS others_average_bytes
FROM partitions
GROUP BY topic
HAVING count() > 1 AND sum(bytes) >= 1048576 AND max(bytes) > 2 * (sum(bytes) - max(bytes)) / (count() - 1)
ORDER BY largest_bytes DESC, topic
LIMIT 100""",
        ),
        Diagnosis(
            "hot-partitions",
            "Partitions that now get at least 1,000 records, and more than twice the records of the others' average.",
            "find the key: SELECT key, count() FROM messages WHERE topic = '...' AND partition = ... GROUP BY key",
            """SELECT topic, argMax(partition, arrived) AS hottest_partition, max(arrived) AS records,
    round((sum(arrived) - max(arrived)) / (count() - 1), 1) AS others_average
FROM (
    SELECT p.topic AS topic, p.partition AS partition, ifNull(r.records, 0) AS arrived
    FROM partitions AS p
    LEFT JOIN (
        SELECT topic, partition, count() AS records FROM messages
        WHERE timestamp > now() - INTERVAL {minutes} MINUTE GROUP BY topic, partition
    ) AS r ON r.topic = p.topic AND r.partition = p.partition
)
GROUP BY topic
HAVING count() > 1 AND max(arrived) >= 1000 AND max(arrived) > 2 * (sum(arrived) - max(arrived)) / (count() - 1)
ORDER BY records DESC, topic
LIMIT 100""",
            5,
        ),
        Diagnosis(
            "rebalances",
            "Groups with five rebalances in ten minutes, or in a rebalance that does not end.",
            "raise session.timeout.ms or max.poll.interval.ms of the members, or give them a group.instance.id",
            """SELECT group_id, kind, state, members, generation_id, recent_rebalances, state_time, coordinator
FROM consumer_groups
WHERE recent_rebalances >= 5
    OR (state NOT IN ('Stable', 'Empty', 'Dead') AND state_time <= now64(3) - INTERVAL {minutes} MINUTE)
ORDER BY recent_rebalances DESC, group_id
LIMIT 100""",
            1,
        ),
    )
}
