"""The limits and timeouts of groups. The names in the comments are Kafka's settings."""

from dataclasses import dataclass

DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits of one coordinator."""

    session_timeout_min_ms: int = 6_000  # group.min.session.timeout.ms
    session_timeout_max_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    members_max: int = 2_000  # group.max.size; a rebalance visits all of them without a pause
    protocols_max: int = 100  # per member of a classic group; clients offer up to five
    new_member_timeout_ms: int = 300_000  # Kafka's own constant: the longest wait of a first join
    name_length_max: int = 4_096  # of a group, member, instance or protocol; a journal string has at most 32,767 bytes
    offset_metadata_max_bytes: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 7 * DAY_MS  # offsets.retention.minutes
    expiry_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_members_max: int = 2_000  # group.consumer.max.size
    share_session_timeout_ms: int = 45_000  # group.share.session.timeout.ms
    share_heartbeat_ms: int = 5_000  # group.share.heartbeat.interval.ms
    share_members_max: int = 200  # group.share.max.size
    pattern_length_max: int = 1_000  # of a subscribed topic pattern
