"""Converts the broker's settings to the limits of groups and transactions."""

from tidemill.groups.core.limits import GroupLimits
from tidemill.model.broker_settings import BrokerSettings
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
    )


def transaction_limits(settings: BrokerSettings) -> TransactionLimits:
    """The limits of transactions."""
    return TransactionLimits(
        timeout_ms_max=settings.transaction_max_timeout_ms, id_expiry_ms=settings.transactional_id_expiration_ms
    )
