"""The tables, as numbered migrations. The embedded engine and servers share the definitions.

A definition uses `{table}` and `{engine:...}` where the two differ. Embedded tables are plain MergeTree. With a
cluster, tables are created ON CLUSTER with replicated engines under the seed's paths. A migration runs once per server,
in order, and `schema_version` records it. Never change a definition: a changed table is a new migration.

`messages` is a log as rows. All rows of one insert have the same `appended_at`, so they belong to one week and become
one part. So an insert is stored whole or not at all, even after a power failure. For the same reason rows expire by the
time of their insert and not by their own timestamp: the oldest insert expires first. The columns `batch_*` hold the
fields of a batch. They repeat from row to row and compress to almost nothing.

On servers, rows go through `messages_incoming` and a view. The view rejects rows that belong to another server, rows of
a broker that lost the partition (`claims`), and rows of a deleted topic.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tidemill.streams.clickhouse.url import ServerLayout

DEDUPLICATION_WINDOW = 1000
"""How many insert tokens a table remembers. A repeat follows directly after the original insert."""
TAKEN_OVER = "another broker has taken the partition over"
"""The error text that identifies a rejected insert."""
ENTRY = "messages_incoming"
"""The table that brokers insert into on servers."""
_OFFERED = "messages_offered"
"""The table that brokers inserted into before topics could be spread over servers."""
WHOLE_TOPIC = -1
"""The partition number of a claim on a whole topic."""
DELETED_TOPIC = 2**63 - 1
"""The claim on a deleted topic, newer than every claim of a broker."""
DELETED_TOPIC_DAYS = 7
"""How long a paused broker is rejected after a topic was deleted. The claim expires, so that claims do not pile up."""


class Definition(NamedTuple):
    """One statement. `engine` is empty for definitions without data."""

    name: str
    statement: str
    engine: str = ""
    ranged_only: bool = False
    servers_only: bool = False
    embedded_only: bool = False


_PLAIN = "topic, partition, offset, timestamp, timestamp_type, key, value, headers"
_ROW = """
    topic LowCardinality(String),
    partition Int32,
    offset Int64 CODEC(Delta, LZ4),
    timestamp DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    timestamp_type Enum8('create' = 0, 'append' = 1) DEFAULT bitAnd(batch_attributes, 8) = 8,
    key Nullable(String),
    value Nullable(String),
    headers Array(Tuple(key String, value Nullable(String))),
    mark Enum8('record' = 0, 'commit' = 1, 'abort' = 2, 'empty' = 3, 'opaque' = 4),
    leader_epoch Int32,
    producer_id Int64,
    producer_epoch Int16,
    sequence Int32 CODEC(Delta, LZ4),
    transactional Bool DEFAULT bitAnd(batch_attributes, 16) = 16,
    batch_offset Int64 CODEC(Delta, LZ4),
    batch_last Int64 CODEC(Delta, LZ4),
    batch_attributes Int16,
    batch_timestamp Int64 CODEC(Delta, LZ4),
    batch_max_timestamp Int64 CODEC(Delta, LZ4),
    batch_records Int32,
    batch_bytes Int32,
    delete_horizon Int64 DEFAULT -1,
    appended_at DateTime64(3, 'UTC') CODEC(Delta, LZ4),
    expires_at DateTime('UTC') CODEC(Delta, LZ4)
"""
_BY_TOPIC_ID = """ALTER TABLE {table} ADD COLUMN IF NOT EXISTS topic_id String,
MODIFY ORDER BY (topic, partition, topic_id)"""
_WEEK = "PARTITION BY toYYYYMMDD(toStartOfInterval({0}, INTERVAL 1 WEEK))"

MIGRATIONS: tuple[tuple[Definition, ...], ...] = (
    (
        Definition(
            "messages",
            f"""CREATE TABLE IF NOT EXISTS {{table}} ({_ROW}) ENGINE = {{engine}}
            {_WEEK.format("appended_at")} ORDER BY (topic, partition, offset)
            TTL expires_at SETTINGS {{settings}}""",
            "MergeTree",
        ),
        Definition(
            "orphans",
            f"""CREATE TABLE IF NOT EXISTS {{table}} ({_ROW}, found_at DateTime('UTC') DEFAULT now())
            ENGINE = {{engine}} ORDER BY (topic, partition, offset) SETTINGS {{settings}}""",
            "MergeTree",
        ),
        Definition(
            "partitions",
            """CREATE TABLE IF NOT EXISTS {table} (
                topic String, partition Int32, version UInt64, start_offset Int64, end_offset Int64,
                cut_offset Int64 DEFAULT -1, saved Bool, state String, pieces String, written_at DateTime DEFAULT now()
            ) ENGINE = {engine} ORDER BY (topic, partition) SETTINGS {settings}""",
            "ReplacingMergeTree(version)",
        ),
        Definition(
            "partition_mapping",
            """CREATE TABLE IF NOT EXISTS {table} (low Int32, high Int32, version UInt64)
            ENGINE = {engine} ORDER BY tuple() SETTINGS {settings}""",
            "ReplacingMergeTree(version)",
            ranged_only=True,
        ),
        Definition(
            "messages_ingest",
            f"CREATE TABLE IF NOT EXISTS {{table}} ({_ROW}) ENGINE = Null",
            ranged_only=True,
        ),
        Definition(
            "messages_routed",
            """CREATE MATERIALIZED VIEW IF NOT EXISTS {table} TO {database}.messages AS
            SELECT * EXCEPT refused FROM (
                SELECT *, throwIf(
                    partition < (SELECT max(low) FROM {database}.partition_mapping)
                    OR partition > (SELECT max(high) FROM {database}.partition_mapping),
                    'the partition belongs to another server'
                ) AS refused FROM {database}.messages_ingest
            ) WHERE refused = 0""",
            ranged_only=True,
        ),
    ),
    (
        Definition(
            "group_members",
            f"""CREATE TABLE IF NOT EXISTS {{table}} (
                group_id String, member_id String, generation_id Int32, protocol_type String, protocol_name String,
                client_id String, client_host String, metadata String,
                assignment Map(String, Map(Int32, String)) COMMENT 'topic -> (partition -> member)',
                join_time DateTime64(9, 'UTC') DEFAULT now64(9), heartbeat_time DateTime64(9, 'UTC') DEFAULT now64(9),
                state String
            ) ENGINE = {{engine}} {_WEEK.format("heartbeat_time")}
            PRIMARY KEY (group_id, member_id) ORDER BY (group_id, member_id, heartbeat_time)
            TTL toDateTime(heartbeat_time) + INTERVAL 4 WEEK SETTINGS {{settings}}""",
            "MergeTree",
        ),
        Definition(
            "consumer_offsets",
            f"""CREATE TABLE IF NOT EXISTS {{table}} (
                group_id String, topic String, partition Int32, offset Int64, leader_epoch Int32 DEFAULT -1,
                metadata String, member_id String, generation_id Int32 DEFAULT -1, client_id String,
                client_host String, deleted Bool DEFAULT false, commit_time DateTime64(3, 'UTC') DEFAULT now64(3)
            ) ENGINE = {{engine}} {_WEEK.format("commit_time")}
            PRIMARY KEY (group_id, topic, partition) ORDER BY (group_id, topic, partition)
            TTL toDateTime(commit_time) + INTERVAL 8 WEEK SETTINGS {{settings}}""",
            "ReplacingMergeTree(commit_time)",
        ),
    ),
    (
        Definition(
            "consumer_lag",
            """CREATE VIEW IF NOT EXISTS {table} AS
            SELECT group_id, topic, partition, committed_offset,
                greatest(next_offset, committed_offset) AS latest_offset,
                latest_offset - committed_offset AS lag,
                if(lag = 0, 0, dateDiff('second', oldest, now64(3))) AS lag_seconds,
                commit_time
            FROM (
                SELECT c.group_id AS group_id, c.topic AS topic, c.partition AS partition,
                    any(c.committed.1) AS committed_offset, any(c.committed.2) AS commit_time,
                    max(m.batch_last) + 1 AS next_offset, minIf(m.timestamp, m.offset >= c.committed.1) AS oldest
                FROM {database}.messages AS m
                RIGHT JOIN (
                    SELECT group_id, topic, partition, argMax((offset, commit_time, deleted), commit_time) AS committed
                    FROM {database}.consumer_offsets GROUP BY group_id, topic, partition HAVING NOT committed.3
                ) AS c ON c.topic = m.topic AND c.partition = m.partition
                GROUP BY group_id, topic, partition
            )""",
        ),
        Definition(
            "topic_rates",
            """CREATE VIEW IF NOT EXISTS {table} AS
            SELECT topic, toStartOfMinute(appended_at) AS minute, count() AS records,
                records / 60 AS records_per_second, sum(length(ifNull(key, '')) + length(ifNull(value, ''))) AS bytes
            FROM {database}.messages WHERE mark = 'record' GROUP BY topic, minute ORDER BY topic, minute""",
        ),
        Definition(
            "group_activity",
            """CREATE VIEW IF NOT EXISTS {table} AS
            SELECT group_id, offsets.topics AS topics, offsets.partitions AS partitions,
                offsets.last_commit AS last_commit, members.members AS members, members.last_heartbeat AS last_heartbeat
            FROM (
                SELECT group_id, uniqExact(topic) AS topics, uniqExact(topic, partition) AS partitions,
                    max(commit_time) AS last_commit
                FROM {database}.consumer_offsets WHERE NOT deleted GROUP BY group_id
            ) AS offsets
            FULL OUTER JOIN (
                SELECT group_id, countIf(last_state != 'Gone') AS members, max(heartbeat) AS last_heartbeat
                FROM (
                    SELECT group_id, member_id, argMax(state, heartbeat_time) AS last_state,
                        max(heartbeat_time) AS heartbeat
                    FROM {database}.group_members GROUP BY group_id, member_id
                ) GROUP BY group_id
            ) AS members USING (group_id)""",
        ),
    ),
    (
        # The previous view read every row for every group. Now the end of a partition is one column, and the table's
        # order finds the oldest unread record. If compaction removed the next records, the age is unknown.
        Definition(
            "consumer_lag",
            """CREATE OR REPLACE VIEW {table} AS
            WITH committed AS (
                SELECT group_id, topic, partition, argMax((offset, commit_time, deleted), commit_time) AS last
                FROM {database}.consumer_offsets GROUP BY group_id, topic, partition HAVING NOT last.3
            ),
            ends AS (
                SELECT topic, partition, max(batch_last) + 1 AS next_offset FROM {database}.messages
                GROUP BY topic, partition
            ),
            nearby AS (
                SELECT toString(topic) AS topic, partition, offset, timestamp FROM {database}.messages
                WHERE (topic, partition, offset) IN (
                    SELECT topic, partition, arrayJoin(range(last.1, last.1 + 32)) FROM committed
                )
            ),
            unread AS (
                SELECT c.group_id AS group_id, c.topic AS topic, c.partition AS partition,
                    minIf(n.timestamp, n.offset >= c.last.1) AS oldest, countIf(n.offset >= c.last.1) AS found
                FROM committed AS c INNER JOIN nearby AS n ON n.topic = c.topic AND n.partition = c.partition
                GROUP BY group_id, topic, partition
            )
            SELECT c.group_id AS group_id, c.topic AS topic, c.partition AS partition, c.last.1 AS committed_offset,
                greatest(ends.next_offset, committed_offset) AS latest_offset, latest_offset - committed_offset AS lag,
                multiIf(lag = 0, 0, unread.found > 0, dateDiff('second', unread.oldest, now64(3)), NULL) AS lag_seconds,
                c.last.2 AS commit_time
            FROM committed AS c
            LEFT JOIN ends ON ends.topic = c.topic AND ends.partition = c.partition
            LEFT JOIN unread
                ON unread.group_id = c.group_id AND unread.topic = c.topic AND unread.partition = c.partition""",
        ),
        Definition(
            "group_activity",
            """CREATE OR REPLACE VIEW {table} AS
            SELECT group_id, countIf(is_active) AS members, uniqExactIf(topic, is_offset) AS topics,
                countIf(is_offset) AS partitions, maxOrNullIf(seen, is_offset) AS last_commit,
                maxOrNullIf(seen, NOT is_offset) AS last_heartbeat
            FROM (
                SELECT group_id, '' AS topic, false AS is_offset, toDateTime64(max(heartbeat_time), 3, 'UTC') AS seen,
                    argMax(state, heartbeat_time) != 'Gone' AND seen > now64(3) - INTERVAL 2 MINUTE AS is_active
                FROM {database}.group_members GROUP BY group_id, member_id
                UNION ALL
                SELECT group_id, topic, true, max(commit_time), false FROM {database}.consumer_offsets
                GROUP BY group_id, topic, partition HAVING NOT argMax(deleted, commit_time)
            ) GROUP BY group_id""",
        ),
    ),
    (
        # Brokers take over partitions from each other, so each row carries the claim of its broker. This is a new
        # table, not a changed one. A table without its view would silently drop the rows of a broker with the previous
        # version.
        Definition(
            "claims",
            """CREATE TABLE IF NOT EXISTS {table} (
                topic String, partition Int32, claim Int64, taken_at DateTime64(3, 'UTC') DEFAULT now64(3)
            ) ENGINE = {engine} ORDER BY (topic, partition) SETTINGS {settings}""",
            "ReplacingMergeTree(claim)",
            servers_only=True,
        ),
        Definition(
            "owner",
            """CREATE TABLE IF NOT EXISTS {table} (cluster_id String, since DateTime64(3, 'UTC') DEFAULT now64(3))
            ENGINE = {engine} ORDER BY tuple() SETTINGS {settings}""",
            "MergeTree",
            servers_only=True,
        ),
        Definition(
            "partition_mapping",
            """CREATE TABLE IF NOT EXISTS {table} (low Int32, high Int32, version UInt64)
            ENGINE = {engine} ORDER BY tuple() SETTINGS {settings}""",
            "ReplacingMergeTree(version)",
            servers_only=True,
        ),
        Definition(
            "messages_claimed",
            f"CREATE TABLE IF NOT EXISTS {{table}} ({_ROW}, claim Int64) ENGINE = Null",
            servers_only=True,
        ),
        Definition(
            "messages_admitted",
            f"""CREATE MATERIALIZED VIEW IF NOT EXISTS {{table}} TO {{database}}.messages AS
            SELECT * EXCEPT (elsewhere, taken_over, claim) FROM (
                SELECT *,
                    throwIf(
                        partition < (SELECT argMax(low, version) FROM {{database}}.partition_mapping)
                        OR partition > (SELECT argMax(high, version) FROM {{database}}.partition_mapping),
                        'the partition belongs to another server'
                    ) AS elsewhere,
                    throwIf(
                        (toString(topic), partition, claim) NOT IN (
                            SELECT topic, partition, max(claim) FROM {{database}}.claims GROUP BY topic, partition
                        ),
                        '{TAKEN_OVER}'
                    ) AS taken_over
                FROM {{database}}.messages_claimed
            ) WHERE elsewhere = 0 AND taken_over = 0""",
            servers_only=True,
        ),
        Definition("messages_ingest", "DROP TABLE IF EXISTS {table}", ranged_only=True),
        Definition("messages_routed", "DROP TABLE IF EXISTS {table}", ranged_only=True),
    ),
    (
        # A topic may be deleted and created again while a broker is paused, so every late change names the topic by its
        # id.
        Definition(
            "messages",
            "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS topic_id LowCardinality(String) AFTER expires_at",
        ),
        Definition(
            "orphans",
            "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS topic_id LowCardinality(String) AFTER expires_at",
        ),
        Definition("partitions", _BY_TOPIC_ID),
        Definition("claims", _BY_TOPIC_ID, servers_only=True),
        Definition(
            "claims",
            f"""ALTER TABLE {{table}} MODIFY TTL toDateTime(taken_at) + INTERVAL {DELETED_TOPIC_DAYS} DAY
            DELETE WHERE partition = {WHOLE_TOPIC}""",
            servers_only=True,
        ),
        Definition(
            _OFFERED,
            f"""CREATE TABLE IF NOT EXISTS {{table}} ({_ROW}, topic_id LowCardinality(String), claim Int64)
            ENGINE = Null""",
            servers_only=True,
        ),
        Definition(
            "messages_accepted",
            f"""CREATE MATERIALIZED VIEW IF NOT EXISTS {{table}} TO {{database}}.messages AS
            SELECT * EXCEPT (elsewhere, taken_over, claim) FROM (
                SELECT *,
                    throwIf(
                        partition < (SELECT argMax(low, version) FROM {{database}}.partition_mapping)
                        OR partition > (SELECT argMax(high, version) FROM {{database}}.partition_mapping),
                        'the partition belongs to another server'
                    ) AS elsewhere,
                    throwIf(
                        (toString(topic), partition, toString(topic_id), claim) NOT IN (
                            SELECT topic, partition, topic_id, max(claim) FROM {{database}}.claims
                            GROUP BY topic, partition, topic_id
                        )
                        OR (toString(topic), toString(topic_id)) IN (
                            SELECT topic, topic_id FROM {{database}}.claims WHERE partition = {WHOLE_TOPIC}
                        ),
                        '{TAKEN_OVER}'
                    ) AS taken_over
                FROM {{database}}.{_OFFERED}
            ) WHERE elsewhere = 0 AND taken_over = 0""",
            servers_only=True,
        ),
        Definition("messages_claimed", "DROP TABLE IF EXISTS {table}", servers_only=True),
        Definition("messages_admitted", "DROP TABLE IF EXISTS {table}", servers_only=True),
    ),
    (
        # When all rows expired while no broker ran, only this column records which offsets they had.
        Definition(
            "partitions",
            """ALTER TABLE {table} ADD COLUMN IF NOT EXISTS given_offset Int64 DEFAULT 0,
            ADD COLUMN IF NOT EXISTS given_ms Int64 DEFAULT 0, ADD COLUMN IF NOT EXISTS kept_ms Int64 DEFAULT -2""",
        ),
    ),
    (
        # A topic's partitions may be distributed over servers, so that an unreachable server affects a share of each
        # topic.
        Definition(
            "partition_mapping",
            "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS place UInt16 DEFAULT 0",
            servers_only=True,
        ),
        Definition(
            ENTRY,
            f"""CREATE TABLE IF NOT EXISTS {{table}} (
                {_ROW}, topic_id LowCardinality(String), claim Int64, spread UInt16
            ) ENGINE = Null""",
            servers_only=True,
        ),
        Definition(
            "messages_checked",
            f"""CREATE MATERIALIZED VIEW IF NOT EXISTS {{table}} TO {{database}}.messages AS
            SELECT * EXCEPT (elsewhere, taken_over, claim, spread) FROM (
                SELECT *,
                    throwIf(
                        if(
                            spread > 0,
                            partition % greatest(spread, 1)
                                != (SELECT argMax(place, version) FROM {{database}}.partition_mapping),
                            partition < (SELECT argMax(low, version) FROM {{database}}.partition_mapping)
                                OR partition > (SELECT argMax(high, version) FROM {{database}}.partition_mapping)
                        ),
                        'the partition belongs to another server'
                    ) AS elsewhere,
                    throwIf(
                        (toString(topic), partition, toString(topic_id), claim) NOT IN (
                            SELECT topic, partition, topic_id, max(claim) FROM {{database}}.claims
                            GROUP BY topic, partition, topic_id
                        )
                        OR (toString(topic), toString(topic_id)) IN (
                            SELECT topic, topic_id FROM {{database}}.claims WHERE partition = {WHOLE_TOPIC}
                        ),
                        '{TAKEN_OVER}'
                    ) AS taken_over
                FROM {{database}}.{ENTRY}
            ) WHERE elsewhere = 0 AND taken_over = 0""",
            servers_only=True,
        ),
        Definition(_OFFERED, "DROP TABLE IF EXISTS {table}", servers_only=True),
        Definition("messages_accepted", "DROP TABLE IF EXISTS {table}", servers_only=True),
    ),
    (
        Definition(
            "consumer_groups",
            f"""CREATE TABLE IF NOT EXISTS {{table}} (
                group_id String, kind LowCardinality(String), state LowCardinality(String), generation_id Int32,
                protocol_type String, protocol_name String, leader String, coordinator Int32, members UInt32,
                state_time Nullable(DateTime64(3, 'UTC')), rebalance_time Nullable(DateTime64(3, 'UTC')),
                recent_rebalances UInt32, update_time DateTime64(3, 'UTC') DEFAULT now64(3)
            ) ENGINE = {{engine}} {_WEEK.format("update_time")} ORDER BY group_id
            TTL toDateTime(update_time) + INTERVAL 8 WEEK SETTINGS {{settings}}""",
            "ReplacingMergeTree(update_time)",
        ),
        Definition(
            "partition_servers",
            """CREATE TABLE IF NOT EXISTS {table} (
                place UInt16, server String, low Int32, high Int32, version UInt64
            ) ENGINE = {engine} ORDER BY place SETTINGS {settings}""",
            "ReplacingMergeTree(version)",
            servers_only=True,
        ),
        Definition(
            "kafka_partition_mapping",
            """CREATE VIEW IF NOT EXISTS {table} AS
            SELECT place, any(server) AS server, any(low) AS first_partition, any(high) AS last_partition
            FROM {database}.partition_servers
            WHERE version = (SELECT max(version) FROM {database}.partition_servers)
            GROUP BY place ORDER BY place""",
            servers_only=True,
        ),
        Definition(
            "kafka_partition_mapping",
            """CREATE VIEW IF NOT EXISTS {table} AS
            SELECT toUInt16(0) AS place, 'embedded' AS server, toInt32(0) AS first_partition,
                toInt32(2147483647) AS last_partition""",
            embedded_only=True,
        ),
        Definition(
            "kafka_messages",
            f"""CREATE VIEW IF NOT EXISTS {{table}} AS
            SELECT {_PLAIN}, producer_id, transactional, leader_epoch, appended_at FROM {{database}}.messages
            WHERE mark = 'record'""",
        ),
        Definition(
            "kafka_messages_ingest",
            f"""CREATE VIEW IF NOT EXISTS {{table}} AS
            SELECT {_PLAIN}, producer_id, transactional, leader_epoch, appended_at FROM {{database}}.messages
            WHERE mark = 'record' AND appended_at > now64(3) - INTERVAL 1 MINUTE""",
        ),
    ),
    (
        # One of several replicas owns a range. Rows name the ownership that their broker knows, so a broker that missed
        # a take-over is rejected.
        Definition(
            "range_owner",
            """CREATE TABLE IF NOT EXISTS {table} (
                ownership UInt32, server String, replica_name String, since DateTime64(3, 'UTC') DEFAULT now64(3)
            ) ENGINE = {engine} ORDER BY ownership SETTINGS {settings}""",
            "MergeTree",
            servers_only=True,
        ),
        Definition(
            ENTRY,
            "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS ownership UInt32 DEFAULT 0",
            servers_only=True,
        ),
        Definition(
            "messages_checked",
            f"""ALTER TABLE {{table}} MODIFY QUERY
            SELECT * EXCEPT (elsewhere, taken_over, claim, spread, ownership) FROM (
                SELECT *,
                    throwIf(
                        if(
                            spread > 0,
                            partition % greatest(spread, 1)
                                != (SELECT argMax(place, version) FROM {{database}}.partition_mapping),
                            partition < (SELECT argMax(low, version) FROM {{database}}.partition_mapping)
                                OR partition > (SELECT argMax(high, version) FROM {{database}}.partition_mapping)
                        )
                        OR ownership != (SELECT max(ownership) FROM {{database}}.range_owner),
                        'the partition belongs to another server'
                    ) AS elsewhere,
                    throwIf(
                        (toString(topic), partition, toString(topic_id), claim) NOT IN (
                            SELECT topic, partition, topic_id, max(claim) FROM {{database}}.claims
                            GROUP BY topic, partition, topic_id
                        )
                        OR (toString(topic), toString(topic_id)) IN (
                            SELECT topic, topic_id FROM {{database}}.claims WHERE partition = {WHOLE_TOPIC}
                        ),
                        '{TAKEN_OVER}'
                    ) AS taken_over
                FROM {{database}}.{ENTRY}
            ) WHERE elsewhere = 0 AND taken_over = 0""",
            servers_only=True,
        ),
    ),
)
VERSION = len(MIGRATIONS)
_VERSIONS = Definition(
    "schema_version",
    """CREATE TABLE IF NOT EXISTS {table} (version UInt32, at DateTime DEFAULT now())
    ENGINE = {engine} ORDER BY version SETTINGS {settings}""",
    "MergeTree",
)


TABLES_WITH_DATA = frozenset(
    {_VERSIONS.name, *(each.name for definitions in MIGRATIONS for each in definitions if each.engine)}
)
"""The tables that replicas must have, too."""


def preparation(layout: ServerLayout) -> Iterator[str]:
    """Yield the statements that must run before the schema version can be read."""
    yield f"CREATE DATABASE IF NOT EXISTS {quoted(layout.database)}{_on_cluster(layout)}"
    yield render(_VERSIONS, layout)


def steps(layout: ServerLayout, version: int) -> Iterator[str]:
    """Yield the statements that migrate a server from `version` to the newest version."""
    for number, definitions in enumerate(MIGRATIONS[version:], version + 1):
        for definition in definitions:
            if _belongs(definition, layout):
                yield render(definition, layout)
        yield f"INSERT INTO {quoted(layout.database)}.schema_version (version) VALUES ({number})"


def definitions(layout: ServerLayout) -> Iterator[str]:
    """Yield every statement that creates the tables of a new server, indented evenly."""
    for statement in (*preparation(layout), *steps(layout, 0)):
        first, *lines = statement.splitlines()
        yield "\n".join([first, *(line[8:] if line.startswith(" " * 12) else line.rstrip() for line in lines)])


def _belongs(definition: Definition, layout: ServerLayout) -> bool:
    if definition.ranged_only:
        return layout.ranged
    return not (definition.servers_only if layout.embedded else definition.embedded_only)


def render(definition: Definition, layout: ServerLayout) -> str:
    """Return the statement for this layout."""
    database = quoted(layout.database)
    return definition.statement.format(
        table=f"{database}.{definition.name}{_on_cluster(layout)}",
        database=database,
        engine=_engine(definition, layout),
        settings=_settings(layout),
    )


def quoted(name: str) -> str:
    """Return a quoted identifier."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _on_cluster(layout: ServerLayout) -> str:
    return f" ON CLUSTER {quoted(layout.cluster)}" if layout.cluster else ""


def _engine(definition: Definition, layout: ServerLayout) -> str:
    if not layout.cluster or not definition.engine:
        return definition.engine
    kind, _, version = definition.engine.partition("(")
    arguments = [f"'/clickhouse/tables/{{shard}}/{definition.name}'", "'{replica}'"]
    if version:
        arguments.append(version.removesuffix(")"))
    return f"Replicated{kind}({', '.join(arguments)})"


def _settings(layout: ServerLayout) -> str:
    if layout.cluster:
        return f"replicated_deduplication_window = {DEDUPLICATION_WINDOW}"
    settings = [f"non_replicated_deduplication_window = {DEDUPLICATION_WINDOW}"]
    if layout.fsync:
        settings += ["fsync_after_insert = 1", "fsync_part_directory = 1"]
    return ", ".join(settings)
