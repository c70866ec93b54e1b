"""The tables that can be queried: their columns, and how each row is built.

There are three kinds of tables. `messages` is read from the partitions, as a reader of committed records sees them. The
broker builds most others from its state at the moment of the query. Some are SQL over other tables.
"""

from typing import NamedTuple

MESSAGES = "messages"


class TableColumn(NamedTuple):
    """A column; `expression` is the SQL expression over the broker's value, if it is not just the name."""

    name: str
    kind: str
    doc: str
    expression: str = ""


class SqlTable(NamedTuple):
    """A table; `made_by` is the query that builds it from other tables."""

    name: str
    doc: str
    columns: tuple[TableColumn, ...]
    made_by: str = ""

    @property
    def column_names(self) -> tuple[str, ...]:
        """Its columns, in order."""
        return tuple(each.name for each in self.columns)


def _text(name: str, doc: str) -> TableColumn:
    return TableColumn(name, "String", doc, f"assumeNotNull({name})")


def _number(name: str, kind: str, doc: str) -> TableColumn:
    return TableColumn(name, kind, doc, f"assumeNotNull({name})")


def _time(name: str, doc: str) -> TableColumn:
    return TableColumn(name, "DateTime64(3, 'UTC')", doc, f"toDateTime64(assumeNotNull({name}), 3, 'UTC')")


def _time_or_null(name: str, doc: str) -> TableColumn:
    return TableColumn(name, "Nullable(DateTime64(3, 'UTC'))", doc, f"toDateTime64OrNull(toString({name}), 3, 'UTC')")


def _text_or_empty(name: str, doc: str) -> TableColumn:
    """A column that brokers of the previous version do not have."""
    return TableColumn(name, "String", doc, f"ifNull({name}, '')")


_HEADER = "Tuple(key String, value Nullable(String))"
_TIME_TYPE = "Enum8('create' = 0, 'append' = 1)"

TABLES: dict[str, SqlTable] = {
    table.name: table
    for table in (
        SqlTable(
            MESSAGES,
            "All records that a reader of committed records can see.",
            (
                _text("topic", "Topic."),
                _number("partition", "Int32", "Partition."),
                _number("offset", "Int64", "Offset in the partition."),
                _time("timestamp", "Time of the record."),
                TableColumn(
                    "timestamp_type",
                    _TIME_TYPE,
                    "Source of the time: the producer or the broker.",
                    f"CAST(assumeNotNull(timestamp_type), $${_TIME_TYPE}$$)",
                ),
                TableColumn("key", "Nullable(String)", "Key, as bytes."),
                TableColumn("value", "Nullable(String)", "Value, as bytes."),
                TableColumn("headers", f"Array({_HEADER})", "Headers, in order.", f"CAST(headers, 'Array({_HEADER})')"),
            ),
        ),
        SqlTable(
            "partitions",
            "All partitions, with the start and end of their logs.",
            (
                _text("topic", "Topic."),
                _number("partition", "Int32", "Partition."),
                _number("start_offset", "Int64", "First offset that may be read."),
                _number("end_offset", "Int64", "Offset that the next record gets."),
                _number("bytes", "Int64", "Bytes of all batches, as received."),
                _text("storage", "Storage of the records: segments or clickhouse."),
            ),
        ),
        SqlTable(
            "consumer_offsets",
            "Committed offsets of groups.",
            (
                _text("group_id", "Group."),
                _text("topic", "Topic."),
                _number("partition", "Int32", "Partition."),
                _number("offset", "Int64", "Next offset that the group reads."),
                _number("leader_epoch", "Int32", "Leader epoch of the commit, or -1."),
                _text("metadata", "Text that the client sent with the commit."),
                _time("commit_time", "Time of the commit."),
                _text_or_empty("member_id", "Member that committed; empty if it was none or is unknown."),
                TableColumn(
                    "generation_id",
                    "Int32",
                    "Generation or member epoch of the commit, or -1.",
                    "toInt32(ifNull(generation_id, -1))",
                ),
                _text_or_empty("client_id", "Client id of the committer."),
                _text_or_empty("client_host", "Address of the committer."),
            ),
        ),
        SqlTable(
            "consumer_groups",
            "Groups: state, generation, coordinator and rebalances.",
            (
                _text("group_id", "Group."),
                _text("kind", "Kind of the group: classic, consumer (KIP-848) or share (KIP-932)."),
                _text("state", "State: Stable, PreparingRebalance, Reconciling, Empty, ..."),
                _number("generation_id", "Int32", "Generation or epoch; every rebalance increases it."),
                _text("protocol_type", "Kind of the members: consumer, connect, ..."),
                _text("protocol_name", "Assignor that distributes the partitions."),
                _text("leader", "Member that assigns partitions; empty where the broker assigns."),
                _number("members", "Int32", "Members."),
                _time_or_null("state_time", "Since when it has this state."),
                _time_or_null("rebalance_time", "Last rebalance since its coordinator took over."),
                _number("recent_rebalances", "Int32", "Rebalances in the last ten minutes; at most 64 are counted."),
                _number("coordinator", "Int32", "Node id of the broker that coordinates it."),
            ),
        ),
        SqlTable(
            "group_members",
            "Members of groups and their assignments.",
            (
                _text("group_id", "Group."),
                _text("member_id", "Member."),
                _number("generation_id", "Int32", "Generation of the group, or epoch of the member."),
                _text("protocol_type", "Kind of the members: consumer, connect, ..."),
                _text("protocol_name", "Assignor that distributes the partitions."),
                _text("client_id", "Client id that the client sends."),
                _text("client_host", "Address that the client connects from."),
                TableColumn(
                    "assignment",
                    "Map(String, Map(Int32, String))",
                    "Topic -> (partition -> member).",
                    "CAST(assignment, 'Map(String, Map(Int32, String))')",
                ),
                _number("leader", "Bool", "Whether it is the leader of the group."),
                _time("heartbeat_time", "Time of its last heartbeat."),
                _text("state", "State of the group."),
            ),
        ),
        SqlTable(
            "consumer_lag",
            "Lag of groups, in records and in seconds.",
            (
                _text("group_id", "Group."),
                _text("topic", "Topic."),
                _number("partition", "Int32", "Partition."),
                _number("committed_offset", "Int64", "Next offset that the group reads."),
                _number("latest_offset", "Int64", "End of the partition."),
                _number("lag", "Int64", "Offsets from the first unread record on; 0 when nothing is left to read."),
                _number("lag_seconds", "Float64", "Age of the oldest unread record; 0 without lag."),
                _time("commit_time", "Time of the group's last commit here."),
            ),
        ),
        SqlTable(
            "share_groups",
            "Share groups: what they have done of each partition, and their locks.",
            (
                _text("group_id", "Group."),
                _text("topic", "Topic."),
                _number("partition", "Int32", "Partition."),
                TableColumn("start_offset", "Nullable(Int64)", "First offset that is not done; NULL: not begun."),
                TableColumn("end_offset", "Nullable(Int64)", "End of the partition; NULL: not known."),
                TableColumn("lag", "Nullable(Int64)", "Records that are not done; NULL: not known."),
                TableColumn("acquired", "Nullable(Int64)", "Records that a member has a lock of; NULL: no members."),
                TableColumn(
                    "available", "Nullable(Int64)", "Records that were delivered and are delivered again next."
                ),
                TableColumn("waiting", "Nullable(Int64)", "Records that wait for their retry."),
                TableColumn("oldest_lock_seconds", "Nullable(Float64)", "Age of the oldest lock; 0 without locks."),
            ),
        ),
        SqlTable(
            "timers",
            "Messages on timelines.",
            (
                _text("timeline", "Timeline."),
                _text("id", "Id of the message."),
                _time("due_time", "Time when it is due; for a leased message, the end of the lease."),
                _time("scheduled_time", "Time that the producer asked for."),
                _text("status", "waiting, available or leased."),
                TableColumn("holder", "Nullable(String)", "Consumer that holds the lease."),
                _number("attempts", "Int32", "Leases so far."),
                _text("producer_group", "Group of its producer."),
                TableColumn("key", "Nullable(String)", "Key, as bytes."),
                _number("bytes", "Int64", "Size of its body."),
            ),
        ),
        SqlTable(
            "topic_rates",
            "Records and bytes of each minute.",
            (
                TableColumn("topic", "String", "Topic."),
                TableColumn("minute", "DateTime('UTC')", "Minute, by the times of the records."),
                TableColumn("records", "UInt64", "Records in it."),
                TableColumn("records_per_second", "Float64", "The same per second."),
                TableColumn("bytes", "UInt64", "Bytes of keys and values."),
            ),
            """SELECT topic, toDateTime(toStartOfMinute(timestamp), 'UTC') AS minute, count() AS records,
            count() / 60 AS records_per_second, sum(length(ifNull(key, '')) + length(ifNull(value, ''))) AS bytes
            FROM messages GROUP BY topic, minute""",
        ),
        SqlTable(
            "group_activity",
            "All groups: members, topics, lag and last activity.",
            (
                TableColumn("group_id", "String", "Group."),
                TableColumn("members", "UInt64", "Members with a heartbeat within two minutes."),
                TableColumn("topics", "UInt64", "Topics with committed offsets."),
                TableColumn("partitions", "UInt64", "Partitions with committed offsets."),
                TableColumn("lag", "Int64", "Lag in records, of all partitions."),
                TableColumn("last_commit", "Nullable(DateTime64(3, 'UTC'))", "Newest commit."),
                TableColumn("last_heartbeat", "Nullable(DateTime64(3, 'UTC'))", "Newest heartbeat of a member."),
            ),
            """SELECT group_id, countIf(is_member AND seen > now64(3) - INTERVAL 2 MINUTE) AS members,
            uniqExactIf(topic, NOT is_member) AS topics, countIf(NOT is_member) AS partitions, sum(behind) AS lag,
            maxOrNullIf(seen, NOT is_member) AS last_commit, maxOrNullIf(seen, is_member) AS last_heartbeat
            FROM (
                SELECT group_id, true AS is_member, '' AS topic, toInt64(0) AS behind, heartbeat_time AS seen
                FROM group_members
                UNION ALL
                SELECT group_id, false, topic, lag, commit_time FROM consumer_lag
            ) GROUP BY group_id""",
        ),
    )
}


def select_columns(table: SqlTable, columns: tuple[str, ...], place: str) -> str:
    """Return the query that gives these columns their types, over the broker's rows at `place`."""
    selected = [f"{each.expression or each.name} AS {each.name}" for each in table.columns if each.name in columns]
    return f"SELECT {', '.join(selected)} FROM {place}"  # noqa: S608 - names of our own
