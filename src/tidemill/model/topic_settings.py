"""The settings of a topic, with Kafka's names. One table has name, kind, default, limits and meaning.

The broker reads `TopicSettings`: typed, immutable, and created by `parse` from the overrides of a topic. Everything
that lists settings (DescribeConfigs, the reference, `topic describe`) reads the same table, so that a setting is
defined in one place.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, NamedTuple

from tidemill.model.errors import InvalidConfig

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1
DAY_MS = 86_400_000
BROKERS_CHOICE = "broker"
IN_SEGMENTS = "segments"
IN_TABLES = "clickhouse"
SPREAD = "tidemill.spread.servers"


class SettingKind(Enum):
    """How the text of a setting is parsed. The value is Kafka's number for the type in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Setting(NamedTuple):
    """One setting: its name, its type, its limits and its meaning."""

    name: str
    kind: SettingKind
    default: str
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    sensitive: bool = False
    """A secret: listings and errors do not show its value."""

    @property
    def field(self) -> str:
        """The attribute of TopicSettings that holds it."""
        return self.name.replace(".", "_")

    def read(self, text: str) -> Any:
        """Parse `text`. Raise InvalidConfig when it is invalid."""
        try:
            value = _READERS[self.kind](text.strip())
        except ValueError:
            raise InvalidConfig(f"{self.name}={text[:60]!r} is not {_WORDS[self.kind]}") from None
        if self.low is not None and value < self.low:
            raise InvalidConfig(f"{self.name}={text} is below {self.low:g}")
        if self.high is not None and value > self.high:
            raise InvalidConfig(f"{self.name}={text} is above {self.high:g}")
        parts = value if self.kind is SettingKind.LIST else (value,)
        if self.choices and (not parts or any(part not in self.choices for part in parts)):
            raise InvalidConfig(f"{self.name}={text[:60]!r} is none of {', '.join(self.choices)}")
        return value


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


def _whole(text: str) -> int:
    """Parse digits only. Python also accepts "1_000", which no other client could read."""
    if not re.fullmatch("[+-]?[0-9]{1,20}", text):
        raise ValueError(text)
    return int(text)


def _int(text: str) -> int:
    value = _whole(text)
    if not -(2**31) <= value <= INT32_MAX:
        raise ValueError(text)
    return value


def _long(text: str) -> int:
    value = _whole(text)
    if not -(2**63) <= value <= INT64_MAX:
        raise ValueError(text)
    return value


def _double(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or "_" in text:  # NaN would pass every limit check
        raise ValueError(text)
    return value


_READERS: dict[SettingKind, Any] = {
    SettingKind.BOOLEAN: _boolean,
    SettingKind.STRING: str,
    SettingKind.INT: _int,
    SettingKind.LONG: _long,
    SettingKind.DOUBLE: _double,
    SettingKind.LIST: lambda text: tuple(part.strip() for part in text.split(",") if part.strip()),
}
_WORDS = {
    SettingKind.BOOLEAN: "true or false",
    SettingKind.STRING: "a string",
    SettingKind.INT: "a 32-bit number",
    SettingKind.LONG: "a 64-bit number",
    SettingKind.DOUBLE: "a number",
    SettingKind.LIST: "a list",
}

SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "cleanup.policy",
            SettingKind.LIST,
            "delete",
            "Delete old records, compact by key, or both.",
            choices=("delete", "compact"),
        ),
        Setting(
            "compression.type",
            SettingKind.STRING,
            "producer",
            "Codec of stored batches; 'producer' keeps what the producer chose.",
            choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        ),
        Setting("delete.retention.ms", SettingKind.LONG, str(DAY_MS), "How long compaction keeps tombstones.", low=0),
        Setting(
            "file.delete.delay.ms", SettingKind.LONG, "60000", "How long a deleted segment file stays on disk.", low=0
        ),
        Setting("flush.messages", SettingKind.LONG, str(INT64_MAX), "Flush after this many records.", low=1),
        Setting("flush.ms", SettingKind.LONG, str(INT64_MAX), "Flush at the latest after this time.", low=0),
        Setting(
            "index.interval.bytes", SettingKind.INT, "4096", "Bytes of log between two entries of the index.", low=0
        ),
        Setting(
            "max.compaction.lag.ms",
            SettingKind.LONG,
            str(INT64_MAX),
            "A record is compacted at the latest after this time.",
            low=1,
        ),
        Setting("max.message.bytes", SettingKind.INT, "1048588", "Largest record batch.", low=0),
        Setting(
            "message.timestamp.after.max.ms",
            SettingKind.LONG,
            "3600000",
            "How far a record's timestamp may be ahead of the broker's time.",
            low=0,
        ),
        Setting(
            "message.timestamp.before.max.ms",
            SettingKind.LONG,
            str(INT64_MAX),
            "How far a record's timestamp may be behind the broker's time.",
            low=0,
        ),
        Setting(
            "message.timestamp.type",
            SettingKind.STRING,
            "CreateTime",
            "Timestamp of a record: its producer's time or the broker's.",
            choices=("CreateTime", "LogAppendTime"),
        ),
        Setting(
            "min.cleanable.dirty.ratio",
            SettingKind.DOUBLE,
            "0.5",
            "Share of uncompacted log that starts a compaction.",
            low=0,
            high=1,
        ),
        Setting(
            "min.compaction.lag.ms", SettingKind.LONG, "0", "A record stays uncompacted at least this long.", low=0
        ),
        Setting(
            "min.insync.replicas",
            SettingKind.INT,
            "1",
            "Replicas that must have a record before acks=all is acknowledged.",
            low=1,
        ),
        Setting("preallocate", SettingKind.BOOLEAN, "false", "Reserve a segment's space when it is created."),
        Setting("retention.bytes", SettingKind.LONG, "-1", "Largest size of a partition; -1 is unlimited.", low=-1),
        Setting(
            "retention.ms", SettingKind.LONG, str(7 * DAY_MS), "How long records are kept; -1 is unlimited.", low=-1
        ),
        Setting("segment.bytes", SettingKind.INT, "1073741824", "Size at which a segment is closed.", low=14),
        Setting("segment.index.bytes", SettingKind.INT, "10485760", "Largest size of an index file.", low=4),
        Setting(
            "segment.jitter.ms", SettingKind.LONG, "0", "Spreads the closing of segments by up to this time.", low=0
        ),
        Setting("segment.ms", SettingKind.LONG, str(7 * DAY_MS), "Age at which a segment is closed.", low=1),
        Setting(
            "tidemill.flush",
            SettingKind.STRING,
            "fsync",
            "When acks=all is acknowledged: after fsync, or after the write to the page cache.",
            choices=("fsync", "os"),
        ),
        Setting(
            "tidemill.schedule.enable",
            SettingKind.BOOLEAN,
            "false",
            "Deliver records that have a delivery time at that time.",
        ),
        Setting(
            "tidemill.schedule.aliases",
            SettingKind.LIST,
            "none",
            "Headers of other systems that give a record its delivery time.",
            choices=(
                *("none", "__STARTDELIVERTIME", "__kafka_delay_timestamp", "x-delay", "Nats-Schedule"),
                *("DELAY", "AT", "SCHEDULE"),
            ),
        ),
        Setting(
            SPREAD,
            SettingKind.INT,
            "0",
            "In ClickHouse: servers that share the partitions in turn; 0 uses the ranges of --streams.",
            low=0,
            high=65535,
        ),
        Setting(
            "tidemill.storage",
            SettingKind.STRING,
            BROKERS_CHOICE,
            "Where records are stored: segment files, ClickHouse tables, or the default of --streams.",
            choices=(BROKERS_CHOICE, IN_SEGMENTS, IN_TABLES),
        ),
        Setting(
            "tidemill.validate",
            SettingKind.STRING,
            "header",
            "How far a produced batch is checked: its header and uncompressed records, or every record.",
            choices=("header", "records"),
        ),
        Setting(
            "unclean.leader.election.enable",
            SettingKind.BOOLEAN,
            "false",
            "A replica that is not in sync may lead when no other is available.",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Every setting of one topic as a value."""

    cleanup_policy: tuple[str, ...]
    compression_type: str
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    tidemill_flush: str
    tidemill_schedule_aliases: tuple[str, ...]
    tidemill_schedule_enable: bool
    tidemill_spread_servers: int
    tidemill_storage: str
    tidemill_validate: str
    unclean_leader_election_enable: bool

    @property
    def compacted(self) -> bool:
        """Whether compaction runs, so that every record needs a key."""
        return "compact" in self.cleanup_policy

    @property
    def deleted(self) -> bool:
        """Whether retention deletes records."""
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """Whether records get the broker's time."""
        return self.message_timestamp_type == "LogAppendTime"


def setting(name: str) -> Setting:
    """Return the setting of this name. InvalidConfig suggests the nearest name."""
    try:
        return SETTINGS[name]
    except KeyError:
        near = get_close_matches(name, SETTINGS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidConfig(f"unknown topic setting {name[:60]!r}{hint}") from None


def parse(overrides: Mapping[str, str]) -> TopicSettings:
    """Combine `overrides` with the defaults. InvalidConfig names the first invalid setting."""
    given = {setting(name).field: setting(name).read(text) for name, text in overrides.items()}
    settings = dataclasses.replace(DEFAULTS, **given)
    if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms:
        raise InvalidConfig("min.compaction.lag.ms is above max.compaction.lag.ms; lower the first or raise the second")
    return settings


DEFAULTS = TopicSettings(**{setting.field: setting.read(setting.default) for setting in SETTINGS.values()})
