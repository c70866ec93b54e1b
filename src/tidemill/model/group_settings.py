"""The settings of a group, with Kafka's names: those of consumer groups (KIP-848) and of share groups (KIP-932).

A setting that a group does not have comes from the broker's `group.consumer.*` and `group.share.*`, or has the default
here. A group has settings before it exists, and keeps them when it is deleted, as in Kafka.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from tidemill.model.errors import InvalidConfig
from tidemill.model.topic_settings import Setting, SettingKind

HOUR_MS = 3_600_000
LOCKS_MAX = 100_000
DELAYS_MAX = 32
DELAY_MS_MAX = 7 * 24 * HOUR_MS
EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"
_DURATION = re.compile(r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,7})H)?(?:(\d{1,9})M)?(?:(\d{1,10})(?:\.(\d{1,3}))?S)?)?")
_EXPONENTIAL = re.compile(r"exponential:(\d{1,10}):(\d{1,3}(?:\.\d{1,3})?):(\d{1,10})")

SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "consumer.heartbeat.interval.ms",
            SettingKind.INT,
            "5000",
            "How often a member of a consumer group sends a heartbeat.",
            low=100,
            high=HOUR_MS,
        ),
        Setting(
            "consumer.session.timeout.ms",
            SettingKind.INT,
            "45000",
            "Time without a heartbeat after which a member of a consumer group is removed.",
            low=1_000,
            high=HOUR_MS,
        ),
        Setting(
            "share.auto.offset.reset",
            SettingKind.STRING,
            LATEST,
            "Where a share group begins to read a partition: latest, earliest, or by_duration: and an ISO 8601 time.",
        ),
        Setting(
            "share.delivery.count.limit",
            SettingKind.INT,
            "5",
            "How often a share group delivers a record at most.",
            low=1,
            high=1_000,
        ),
        Setting(
            "share.heartbeat.interval.ms",
            SettingKind.INT,
            "5000",
            "How often a member of a share group sends a heartbeat.",
            low=100,
            high=HOUR_MS,
        ),
        Setting(
            "share.isolation.level",
            SettingKind.STRING,
            "read_uncommitted",
            "Whether a share group reads records of open and aborted transactions.",
            choices=("read_uncommitted", "read_committed"),
        ),
        Setting(
            "share.partition.max.record.locks",
            SettingKind.INT,
            "2000",
            "How many records of a partition a share group may have acquired and not yet done.",
            low=1,
            high=LOCKS_MAX,
        ),
        Setting(
            "share.record.lock.duration.ms",
            SettingKind.INT,
            "30000",
            "How long an acquired record is locked for its consumer.",
            low=100,
            high=HOUR_MS,
        ),
        Setting(
            "share.renew.acknowledge.enable",
            SettingKind.BOOLEAN,
            "true",
            "Whether consumers of a share group may renew the lock of a record.",
        ),
        Setting(
            "share.session.timeout.ms",
            SettingKind.INT,
            "45000",
            "Time without a heartbeat after which a member of a share group is removed.",
            low=1_000,
            high=HOUR_MS,
        ),
        Setting(
            "tidemill.share.retry.backoff.ms",
            SettingKind.STRING,
            "",
            "Delay before a released record is delivered again: a list of times, the last of which repeats, or "
            "exponential:first:factor:maximum. Empty: at once.",
        ),
    )
}

BROKER_SETTING_OF = {
    "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
    "share.delivery.count.limit": "group.share.delivery.count.limit",
    "share.heartbeat.interval.ms": "group.share.heartbeat.interval.ms",
    "share.partition.max.record.locks": "group.share.partition.max.record.locks",
    "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
    "share.session.timeout.ms": "group.share.session.timeout.ms",
}
"""The broker's setting that is the default of the group's."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Every setting of one group as a value."""

    consumer_heartbeat_interval_ms: int
    consumer_session_timeout_ms: int
    share_auto_offset_reset: str
    share_delivery_count_limit: int
    share_heartbeat_interval_ms: int
    share_isolation_level: str
    share_partition_max_record_locks: int
    share_record_lock_duration_ms: int
    share_renew_acknowledge_enable: bool
    share_session_timeout_ms: int
    tidemill_share_retry_backoff_ms: str

    @property
    def is_committed(self) -> bool:
        """Whether a share group reads committed records only."""
        return self.share_isolation_level == "read_committed"

    @property
    def reset_before_ms(self) -> int | None:
        """With by_duration, how long before now a share group begins to read."""
        text = self.share_auto_offset_reset
        return duration_ms(text.removeprefix(BY_DURATION)) if text.startswith(BY_DURATION) else None


def setting(name: str) -> Setting:
    """Return the setting of this name. InvalidConfig suggests the nearest name."""
    try:
        return SETTINGS[name]
    except KeyError:
        near = get_close_matches(name, SETTINGS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidConfig(f"unknown group setting {name[:60]!r}{hint}") from None


def parse(overrides: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> GroupSettings:
    """Combine the settings of a group with the defaults of the broker. InvalidConfig names the first invalid one."""
    texts = {name: each.default for name, each in SETTINGS.items()} | dict(defaults or {})
    texts |= {setting(name).name: text for name, text in overrides.items()}
    settings = GroupSettings(**{setting(name).field: setting(name).read(text) for name, text in texts.items()})
    for kind in ("consumer", "share"):
        interval_ms = getattr(settings, f"{kind}_heartbeat_interval_ms")
        if interval_ms >= getattr(settings, f"{kind}_session_timeout_ms"):
            raise InvalidConfig(f"{kind}.heartbeat.interval.ms={interval_ms} must be below {kind}.session.timeout.ms")
    _check_reset(settings.share_auto_offset_reset)
    retry_delays_ms(settings.tidemill_share_retry_backoff_ms)
    return settings


def retry_delays_ms(text: str) -> tuple[int, ...]:
    """The delay after the first delivery, after the second, and so on. Raises InvalidConfig."""
    text = text.strip()
    if not text:
        return ()
    growth = _EXPONENTIAL.fullmatch(text)
    parts = [part.strip() for part in text.split(",")]
    if growth is not None:
        first, factor, most = int(growth[1]), float(growth[2]), int(growth[3])
        if factor < 1 or not 1 <= first <= most:
            raise InvalidConfig(f"{text[:60]!r}: the factor is 1 or more, the maximum not below the first delay")
        delays = [min(int(first * factor**step), most) for step in range(DELAYS_MAX)]
    elif all(re.fullmatch(r"\d{1,10}", part) for part in parts):
        delays = [int(part) for part in parts]
    else:
        raise InvalidConfig(
            f"tidemill.share.retry.backoff.ms={text[:60]!r} is neither a list of milliseconds (1000,10000,60000) "
            "nor exponential:first:factor:maximum (exponential:1000:2:600000)"
        )
    if len(delays) > DELAYS_MAX or max(delays) > DELAY_MS_MAX:
        raise InvalidConfig(
            f"tidemill.share.retry.backoff.ms has at most {DELAYS_MAX} delays of at most {DELAY_MS_MAX} ms"
        )
    return tuple(delays)


def duration_ms(text: str) -> int:
    """The milliseconds of an ISO 8601 duration in days or less. Raises InvalidConfig."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()) or text.endswith("T"):
        raise InvalidConfig(f"{text[:60]!r} is not an ISO 8601 duration; P1DT2H30M is one day, 2 hours and 30 minutes")
    days, hours, minutes, seconds, fraction = (part or "0" for part in found.groups())
    whole_s = ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole_s * 1_000 + int(fraction.ljust(3, "0"))


def _check_reset(text: str) -> None:
    if text.startswith(BY_DURATION):
        duration_ms(text.removeprefix(BY_DURATION))
    elif text not in {EARLIEST, LATEST}:
        raise InvalidConfig(
            f"share.auto.offset.reset={text[:60]!r} is none of latest, earliest, by_duration:<ISO 8601 duration>"
        )
