"""The tables that can be asked: their columns, and how each row is told.

A table is one of three kinds: `messages` is read from the partitions, as a reader of committed records sees them; the
others are told by the broker as they are at the moment of asking; and some are made of others by SQL.
"""

from typing import NamedTuple

MESSAGES = "messages"


class TableColumn(NamedTuple):
    """A column; `told` is how it is made from what the broker hands over, if not by its name."""

    name: str
    kind: str
    doc: str
    told: str = ""


class SqlTable(NamedTuple):
    """A table; `made_by` is the question that makes it of other tables."""

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


_HEADER = "Tuple(key String, value Nullable(String))"
_TIME_TYPE = "Enum8('create' = 0, 'append' = 1)"

TABLES: dict[str, SqlTable] = {
    table.name: table
    for table in (
        SqlTable(
            MESSAGES,
            "Every record that a reader of committed records can see.",
            (
                _text("topic", "Topic."),
                _number("partition", "Int32", "Partition."),
                _number("offset", "Int64", "Place in the partition."),
                _time("timestamp", "Time of the record."),
                TableColumn(
                    "timestamp_type",
                    _TIME_TYPE,
                    "Whose time it is: the producer's or the broker's.",
                    f"CAST(assumeNotNull(timestamp_type), $${_TIME_TYPE}$$)",
                ),
                TableColumn("key", "Nullable(String)", "Key, as bytes."),
                TableColumn("value", "Nullable(String)", "Value, as bytes."),
                TableColumn("headers", f"Array({_HEADER})", "Headers, in order.", f"CAST(headers, 'Array({_HEADER})')"),
            ),
        ),
        SqlTable(
            "partitions",
            "Every partition, and where its log begins and ends.",
            (
                _text("topic", "Topic."),
                _number("partition", "Int32", "Partition."),
                _number("start_offset", "Int64", "First offset that may be read."),
                _number("end_offset", "Int64", "Offset that the next record gets."),
                _number("bytes", "Int64", "Bytes of all batches, as they came."),
                _text("storage", "Where the records are: segments or clickhouse."),
            ),
        ),
        SqlTable(
            "consumer_offsets",
            "What groups have committed.",
            (
                _text("group_id", "Group."),
                _text("topic", "Topic."),
                _number("partition", "Int32", "Partition."),
                _number("offset", "Int64", "Offset that the group goes on at."),
                _number("leader_epoch", "Int32", "Leader epoch that came with it, or -1."),
                _text("metadata", "Text that the client put beside it."),
                _time("commit_time", "When it was committed."),
            ),
        ),
        SqlTable(
            "group_members",
            "Who is in which group, and what each of them reads.",
            (
                _text("group_id", "Group."),
                _text("member_id", "Member."),
                _number("generation_id", "Int32", "Generation of the group, or epoch of the member."),
                _text("protocol_type", "What the members are: consumer, connect, ..."),
                _text("protocol_name", "How partitions are shared out."),
                _text("client_id", "Name that the client gives itself."),
                _text("client_host", "Where it connects from."),
                TableColumn(
                    "assignment",
                    "Map(String, Map(Int32, String))",
                    "Topic -> (partition -> member).",
                    "CAST(assignment, 'Map(String, Map(Int32, String))')",
                ),
                _number("leader", "Bool", "Whether it shares the partitions out."),
                _time("heartbeat_time", "When it was last heard of."),
                _text("state", "State of the group."),
            ),
        ),
        SqlTable(
            "consumer_lag",
            "How far groups are behind, in records and in seconds.",
            (
                _text("group_id", "Group."),
                _text("topic", "Topic."),
                _number("partition", "Int32", "Partition."),
                _number("committed_offset", "Int64", "Offset that the group goes on at."),
                _number("latest_offset", "Int64", "End of the partition."),
                _number("lag", "Int64", "Records between the two."),
                _number("lag_seconds", "Float64", "Age of the oldest record that was not read; 0 without lag."),
                _time("commit_time", "When the group last committed here."),
            ),
        ),
        SqlTable(
            "timers",
            "Messages on timelines.",
            (
                _text("timeline", "Timeline."),
                _text("id", "Id of the message."),
                _time("due_time", "When it is due; while it is leased, when the lease ends."),
                _time("scheduled_time", "When the producer wanted it."),
                _text("status", "waiting, available or leased."),
                TableColumn("holder", "Nullable(String)", "Who has it on lease."),
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
            "Each group: its members, what it reads, its lag, and when it was last heard of.",
            (
                TableColumn("group_id", "String", "Group."),
                TableColumn("members", "UInt64", "Members that were heard of within two minutes."),
                TableColumn("topics", "UInt64", "Topics with committed offsets."),
                TableColumn("partitions", "UInt64", "Partitions with committed offsets."),
                TableColumn("lag", "Int64", "Records behind, of all partitions."),
                TableColumn("last_commit", "Nullable(DateTime64(3, 'UTC'))", "Newest commit."),
                TableColumn("last_heartbeat", "Nullable(DateTime64(3, 'UTC'))", "Newest sign of life of a member."),
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


def telling(table: SqlTable, columns: tuple[str, ...], place: str) -> str:
    """The question that gives these columns their types, over what the broker hands over at `place`."""
    told = [f"{each.told or each.name} AS {each.name}" for each in table.columns if each.name in columns]
    return f"SELECT {', '.join(told)} FROM {place}"  # noqa: S608 - names of our own
