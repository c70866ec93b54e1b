"""The settings of a broker, with Kafka's names. One table has name, kind, default, limits and meaning.

Some are the broker's own (`num.partitions`, `group.*`, `transaction.*`), and `BrokerSettings` has a typed field for
each. The others are the defaults of topics (`log.retention.ms` for `retention.ms`). They take kind, default and limits
from the topic's table and reach topics through `topic_defaults`. DescribeConfigs and the reference page read the same
table. Values come from `[broker]` in tidemill.toml and from `--set`. They do not change while the broker runs.

Three defaults differ from Kafka's because a developer's single broker is the common case. The first rebalance of a
group waits half a second instead of three, the internal topics have 8 partitions instead of 50, and a group has a
limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

from tidemill.model import topic_settings
from tidemill.model.errors import InvalidConfig
from tidemill.model.security_settings import (
    LISTENER_PREFIX,
    PER_LISTENER,
    SECURITY_SETTINGS,
    SecuritySettings,
)
from tidemill.model.topic_settings import Setting, SettingKind

MINUTE_MS = 60_000

TOPIC_SETTING_OF = {
    "compression.type": "compression.type",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleanup.policy": "cleanup.policy",
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.preallocate": "preallocate",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.roll.jitter.ms": "segment.jitter.ms",
    "log.roll.ms": "segment.ms",
    "log.segment.bytes": "segment.bytes",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
    "message.max.bytes": "max.message.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "tidemill.flush": "tidemill.flush",
    "tidemill.validate": "tidemill.validate",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""The broker's setting on the left is the default of the topic's setting on the right."""

_OWN = (
    Setting("auto.create.topics.enable", SettingKind.BOOLEAN, "true", "Create a topic when it is first used."),
    Setting(
        "auto.leader.rebalance.enable",
        SettingKind.BOOLEAN,
        "true",
        "The controller returns leadership to the first replica of a partition.",
    ),
    Setting(
        "connections.max.idle.ms",
        SettingKind.LONG,
        "600000",
        "Idle time after which a connection is closed.",
        low=1,
    ),
    Setting("default.replication.factor", SettingKind.INT, "1", "Replicas of each partition of a new topic.", low=1),
    Setting("delete.topic.enable", SettingKind.BOOLEAN, "true", "Clients may delete topics."),
    Setting("fetch.max.bytes", SettingKind.INT, "57671680", "Largest response to one fetch.", low=1024),
    Setting(
        "group.consumer.heartbeat.interval.ms",
        SettingKind.INT,
        "5000",
        "Heartbeat interval of the new group protocol.",
        low=1,
    ),
    Setting("group.consumer.max.size", SettingKind.INT, "2000", "Most members of a group of the new protocol.", low=1),
    Setting(
        "group.consumer.session.timeout.ms",
        SettingKind.INT,
        "45000",
        "Session timeout of the new group protocol.",
        low=1,
    ),
    Setting(
        "group.share.delivery.count.limit",
        SettingKind.INT,
        "5",
        "How often a share group delivers a record at most.",
        low=1,
        high=1_000,
    ),
    Setting(
        "group.share.heartbeat.interval.ms",
        SettingKind.INT,
        "5000",
        "Heartbeat interval of share groups.",
        low=100,
        high=3_600_000,
    ),
    Setting("group.share.max.share.sessions", SettingKind.INT, "2000", "Most share sessions on this broker.", low=1),
    Setting("group.share.max.size", SettingKind.INT, "200", "Most members of a share group.", low=1, high=1_000),
    Setting(
        "group.share.partition.max.record.locks",
        SettingKind.INT,
        "2000",
        "How many records of a partition a share group may have acquired and not yet done.",
        low=1,
        high=100_000,
    ),
    Setting(
        "group.share.record.lock.duration.ms",
        SettingKind.INT,
        "30000",
        "How long an acquired record is locked for its consumer.",
        low=100,
        high=3_600_000,
    ),
    Setting(
        "group.share.session.timeout.ms",
        SettingKind.INT,
        "45000",
        "Session timeout of share groups.",
        low=1_000,
        high=3_600_000,
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        SettingKind.INT,
        "500",
        "How long a new group waits for more members.",
        low=0,
    ),
    Setting(
        "group.max.session.timeout.ms",
        SettingKind.INT,
        "1800000",
        "Longest session timeout that a member may request.",
        low=1,
    ),
    Setting("group.max.size", SettingKind.INT, "2000", "Most members of a group.", low=1),
    Setting(
        "group.min.session.timeout.ms",
        SettingKind.INT,
        "6000",
        "Shortest session timeout that a member may request.",
        low=1,
    ),
    Setting(
        "leader.imbalance.check.interval.seconds",
        SettingKind.LONG,
        "300",
        "How often the controller checks for partitions that their first replica does not lead.",
        low=1,
    ),
    Setting(
        "log.retention.check.interval.ms",
        SettingKind.LONG,
        "300000",
        "How often retention checks for expired records; at once while the disk is full.",
        low=1,
    ),
    Setting("max.connections", SettingKind.INT, "10000", "Most connections at a time.", low=1),
    Setting("num.partitions", SettingKind.INT, "1", "Default number of partitions of a new topic.", low=1),
    Setting("offset.metadata.max.bytes", SettingKind.INT, "4096", "Longest metadata of a committed offset.", low=0),
    Setting(
        "offsets.retention.check.interval.ms",
        SettingKind.LONG,
        "600000",
        "How often expired offsets are deleted.",
        low=1,
    ),
    Setting(
        "offsets.retention.minutes", SettingKind.INT, "10080", "How long an empty group's offsets are kept.", low=1
    ),
    Setting("offsets.topic.num.partitions", SettingKind.INT, "8", "Partitions of the offsets topic.", low=1),
    Setting(
        "offsets.topic.replication.factor",
        SettingKind.INT,
        "3",
        "Replicas of the offsets topic, at most one per broker.",
        low=1,
    ),
    Setting("offsets.topic.segment.bytes", SettingKind.INT, "104857600", "Segment size of the offsets topic.", low=1),
    Setting(
        "producer.id.expiration.ms",
        SettingKind.INT,
        "86400000",
        "How long the state of an idle producer is kept.",
        low=1,
    ),
    Setting(
        "queued.max.request.bytes",
        SettingKind.LONG,
        "167772160",
        "Memory for unanswered requests of all connections; at least the largest request.",
        low=1,
    ),
    Setting(
        "replica.fetch.max.bytes",
        SettingKind.INT,
        "1048576",
        "Bytes that a follower requests from one partition.",
        low=1,
    ),
    Setting(
        "replica.fetch.response.max.bytes",
        SettingKind.INT,
        "10485760",
        "Bytes that a follower requests at once.",
        low=1,
    ),
    Setting(
        "replica.fetch.wait.max.ms",
        SettingKind.INT,
        "500",
        "How long a follower's fetch waits for records.",
        low=1,
    ),
    Setting(
        "replica.lag.time.max.ms",
        SettingKind.LONG,
        "30000",
        "A follower that has not reached the end of the log for this long is not in sync.",
        low=1,
    ),
    Setting(
        "share.coordinator.state.topic.num.partitions",
        SettingKind.INT,
        "8",
        "Partitions of the topic that keeps the state of share groups.",
        low=1,
    ),
    Setting(
        "share.coordinator.state.topic.replication.factor",
        SettingKind.INT,
        "3",
        "Replicas of the topic that keeps the state of share groups, at most one per broker.",
        low=1,
    ),
    Setting(
        "share.coordinator.state.topic.segment.bytes",
        SettingKind.INT,
        "104857600",
        "Segment size of the topic that keeps the state of share groups.",
        low=1,
    ),
    Setting("socket.request.max.bytes", SettingKind.INT, "104857600", "Largest request.", low=1),
    Setting(
        "tidemill.balance.window.ms",
        SettingKind.INT,
        "30000",
        "Clients get hints to use another broker at most once in this time. 0: no hints.",
        low=0,
    ),
    Setting(
        "tidemill.clock.accept.after.ms",
        SettingKind.LONG,
        "21600000",
        "A wall clock that jumped is accepted after this time without another jump.",
        low=1,
    ),
    Setting(
        "tidemill.clock.difference.max.ms",
        SettingKind.LONG,
        "60000",
        "The clock is in doubt when most other brokers, coordination or storage differ by more than this.",
        low=1,
    ),
    Setting(
        "tidemill.clock.jump.max.ms",
        SettingKind.LONG,
        "60000",
        "The clock is in doubt when it jumps by more than this, or is this much earlier than at the last stop.",
        low=1,
    ),
    Setting(
        "tidemill.clock.stop.max.ms",
        SettingKind.LONG,
        "259200000",
        "After a reboot the clock is in doubt when it is more than this after the last stop.",
        low=1,
    ),
    Setting(
        "tidemill.internal.topics.grow.enable",
        SettingKind.BOOLEAN,
        "true",
        "Add replicas to internal topics that were created with fewer brokers than their replication factor.",
    ),
    Setting("tidemill.racks", SettingKind.LIST, "", "Allowed racks, the same for all brokers; empty allows any."),
    Setting(
        "tidemill.registry.url",
        SettingKind.STRING,
        "",
        "URL of a schema registry with Confluent's API, such as http://registry:8081. The console decodes with it.",
        sensitive=True,
    ),
    Setting("tidemill.sql.max.bytes", SettingKind.LONG, "67108864", "Largest result of an SQL query.", low=1024),
    Setting(
        "tidemill.sql.max.memory.bytes",
        SettingKind.LONG,
        "536870912",
        "Memory limit of one SQL query.",
        low=1 << 20,
    ),
    Setting(
        "tidemill.sql.max.queries", SettingKind.INT, "2", "SQL queries that run at a time; others wait.", low=1, high=64
    ),
    Setting("tidemill.sql.max.rows", SettingKind.INT, "100000", "Most rows in the result of an SQL query.", low=1),
    Setting(
        "tidemill.sql.sandbox.required",
        SettingKind.BOOLEAN,
        "true",
        "Reject SQL where seccomp cannot confine its process (Linux on x86-64 and arm64 can).",
    ),
    Setting("tidemill.sql.timeout.ms", SettingKind.INT, "30000", "Time limit of one SQL query.", low=1),
    Setting(
        "tidemill.tend.interval.ms",
        SettingKind.INT,
        "5000",
        "How often segments are rolled by age and compacted.",
        low=10,
    ),
    Setting(
        "tidemill.timelines.committed",
        SettingKind.BOOLEAN,
        "true",
        "Acknowledge calls of replicated timelines when all in-sync replicas have them, not only the leader.",
    ),
    Setting(
        "tidemill.timelines.journal.bytes",
        SettingKind.LONG,
        "67108864",
        "Size up to which a partition of the journal of replicated timelines is left as it is. A larger one "
        "is rewritten and trimmed when it has three times what that restates.",
        low=1024,
    ),
    Setting(
        "tidemill.timelines.topic.num.partitions",
        SettingKind.INT,
        "4",
        "Partitions of the journal of replicated timelines.",
        low=1,
        high=512,
    ),
    Setting(
        "tidemill.timelines.topic.replication.factor",
        SettingKind.INT,
        "3",
        "Replicas of the journal of replicated timelines, at most one per broker. All but one must have an entry.",
        low=1,
    ),
    Setting(
        "tidemill.timelines.topic.segment.bytes",
        SettingKind.INT,
        "16777216",
        "Segment size of the journal of replicated timelines.",
        low=1,
    ),
    Setting(
        "tidemill.waiting.topic.num.partitions",
        SettingKind.INT,
        "8",
        "Partitions of the scheduled-records topic, in a cluster without shared timelines.",
        low=1,
    ),
    Setting(
        "tidemill.waiting.topic.replication.factor",
        SettingKind.INT,
        "3",
        "Replicas of the scheduled-records topic, at most one per broker. All but one must have a record.",
        low=1,
    ),
    Setting(
        "tidemill.waiting.topic.segment.bytes",
        SettingKind.INT,
        "104857600",
        "Segment size of the scheduled-records topic.",
        low=1,
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        SettingKind.INT,
        "1000",
        "How often expired transactions are aborted.",
        low=1,
    ),
    Setting(
        "transaction.max.timeout.ms",
        SettingKind.INT,
        "900000",
        "Longest transaction timeout that a producer may request.",
        low=1,
    ),
    Setting(
        "transaction.state.log.num.partitions", SettingKind.INT, "8", "Partitions of the transactions topic.", low=1
    ),
    Setting(
        "transaction.state.log.replication.factor",
        SettingKind.INT,
        "3",
        "Replicas of the transactions topic, at most one per broker.",
        low=1,
    ),
    Setting(
        "transaction.state.log.segment.bytes",
        SettingKind.INT,
        "104857600",
        "Segment size of the transactions topic.",
        low=1,
    ),
    Setting(
        "transactional.id.expiration.ms",
        SettingKind.INT,
        "604800000",
        "How long an idle transactional id is kept.",
        low=1,
    ),
)


def _topic_default(name: str) -> Setting:
    setting = topic_settings.SETTINGS[TOPIC_SETTING_OF[name]]
    return setting._replace(name=name, doc=f"Default of a topic's {setting.name}. {setting.doc}")


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in sorted(
        (*_OWN, *SECURITY_SETTINGS, *map(_topic_default, TOPIC_SETTING_OF)), key=lambda setting: setting.name
    )
}


class Listed(NamedTuple):
    """A setting with its value, for listings."""

    setting: Setting
    value: str
    overridden: bool


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Every setting of one broker as a value. `overrides` has the given values."""

    overrides: Mapping[str, str] = field(repr=False)
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    connections_max_idle_ms: int
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_share_delivery_count_limit: int
    group_share_heartbeat_interval_ms: int
    group_share_max_share_sessions: int
    group_share_max_size: int
    group_share_partition_max_record_locks: int
    group_share_record_lock_duration_ms: int
    group_share_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    leader_imbalance_check_interval_seconds: int
    log_retention_check_interval_ms: int
    max_connections: int
    num_partitions: int
    offset_metadata_max_bytes: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    producer_id_expiration_ms: int
    queued_max_request_bytes: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_lag_time_max_ms: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    socket_request_max_bytes: int
    tidemill_balance_window_ms: int
    tidemill_clock_accept_after_ms: int
    tidemill_clock_difference_max_ms: int
    tidemill_clock_jump_max_ms: int
    tidemill_clock_stop_max_ms: int
    tidemill_internal_topics_grow_enable: bool
    tidemill_racks: tuple[str, ...]
    tidemill_registry_url: str
    tidemill_sql_max_bytes: int
    tidemill_sql_max_memory_bytes: int
    tidemill_sql_max_queries: int
    tidemill_sql_max_rows: int
    tidemill_sql_sandbox_required: bool
    tidemill_sql_timeout_ms: int
    tidemill_tend_interval_ms: int
    tidemill_timelines_committed: bool
    tidemill_timelines_journal_bytes: int
    tidemill_timelines_topic_num_partitions: int
    tidemill_timelines_topic_replication_factor: int
    tidemill_timelines_topic_segment_bytes: int
    tidemill_waiting_topic_num_partitions: int
    tidemill_waiting_topic_replication_factor: int
    tidemill_waiting_topic_segment_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int
    security: SecuritySettings

    @property
    def offsets_retention_ms(self) -> int:
        """How long an empty group's offsets are kept."""
        return self.offsets_retention_minutes * MINUTE_MS

    @property
    def topic_defaults(self) -> dict[str, str]:
        """Return the given topic defaults, with the topics' setting names."""
        return {TOPIC_SETTING_OF[name]: text for name, text in self.overrides.items() if name in TOPIC_SETTING_OF}

    def listed(self) -> list[Listed]:
        """Return every setting, ordered by name. The value of a secret is empty."""
        of_listeners = {name: setting(name) for name in sorted(self.overrides) if name.startswith(LISTENER_PREFIX)}
        return [
            Listed(each, "" if each.sensitive else self.overrides.get(name, each.default), name in self.overrides)
            for name, each in {**SETTINGS, **of_listeners}.items()
        ]

    def of_listener(self, name: str) -> SecuritySettings:
        """Return the security settings of one listener: its own ones override those of the broker."""
        return _security(self.overrides, f"{LISTENER_PREFIX}{name.lower()}.")


def setting(name: str) -> Setting:
    """Return the setting of this name. InvalidConfig suggests the nearest name."""
    if name.startswith(LISTENER_PREFIX):
        inner = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
        if inner in PER_LISTENER:
            return PER_LISTENER[inner]._replace(name=name)
    try:
        return SETTINGS[name]
    except KeyError:
        near = get_close_matches(name, SETTINGS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidConfig(f"unknown broker setting {name[:60]!r}{hint}") from None


def is_known(name: str) -> bool:
    """Whether there is a setting of this name."""
    try:
        return bool(setting(name))
    except InvalidConfig:
        return False


def is_sensitive(name: str) -> bool:
    """Whether a setting holds a secret."""
    return is_known(name) and setting(name).sensitive


def parse(overrides: Mapping[str, str]) -> BrokerSettings:
    """Combine `overrides` with the defaults. InvalidConfig names the first invalid setting."""
    for name, text in overrides.items():
        setting(name).read(text)
    fields = {own.field: own.read(overrides.get(own.name, own.default)) for own in _OWN}
    settings = BrokerSettings(overrides=dict(overrides), security=_security(overrides), **fields)
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        raise InvalidConfig(
            "group.min.session.timeout.ms is above group.max.session.timeout.ms; lower the first or raise the second"
        )
    topic_settings.parse(settings.topic_defaults)
    return settings


def _security(overrides: Mapping[str, str], prefix: str = "") -> SecuritySettings:
    def text(own: Setting) -> str:
        return overrides.get(prefix + own.name, overrides.get(own.name, own.default))

    return SecuritySettings(**{own.field: own.read(text(own)) for own in SECURITY_SETTINGS})


DEFAULTS = parse({})
