"""Converts the broker's settings to the limits of groups and transactions."""

from dataclasses import replace

from tidemill.groups.core.limits import GroupLimits
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.group_settings import GroupSettings
from tidemill.transactions.interface import TransactionLimits


def group_limits(settings: BrokerSettings) -> GroupLimits:
    """The limits of groups, their members and their offsets."""
    return GroupLimits(
        session_timeout_min_ms=settings.group_min_session_timeout_ms,
        session_timeout_max_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        members_max=settings.group_max_size,
        offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_ms,
        expiry_interval_ms=settings.offsets_retention_check_interval_ms,
        consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
        consumer_heartbeat_ms=settings.group_consumer_heartbeat_interval_ms,
        consumer_members_max=settings.group_consumer_max_size,
        share_session_timeout_ms=settings.group_share_session_timeout_ms,
        share_heartbeat_ms=settings.group_share_heartbeat_interval_ms,
        share_members_max=settings.group_share_max_size,
    )


def limits_of_group(limits: GroupLimits, settings: GroupSettings) -> GroupLimits:
    """The limits of one group with its own settings."""
    return replace(
        limits,
        consumer_session_timeout_ms=settings.consumer_session_timeout_ms,
        consumer_heartbeat_ms=settings.consumer_heartbeat_interval_ms,
        share_session_timeout_ms=settings.share_session_timeout_ms,
        share_heartbeat_ms=settings.share_heartbeat_interval_ms,
    )


def transaction_limits(settings: BrokerSettings) -> TransactionLimits:
    """The limits of transactions."""
    return TransactionLimits(
        timeout_ms_max=settings.transaction_max_timeout_ms, id_expiry_ms=settings.transactional_id_expiration_ms
    )
